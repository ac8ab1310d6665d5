#include "plan/train_schedule.h"

#include <algorithm>

#include "base/check.h"
#include "train/parallel/pipeline.h"

namespace weft::plan {
namespace {

constexpr double kUnknown = -1;

// Walks all micro-batches.
PipelineWalk WalkAll(size_t stages, size_t chunks, std::span<const ChunkSeconds> seconds,
                     int64_t micro_batches) {
    const size_t places = stages * chunks;
    const std::vector<double> unknown(static_cast<size_t>(micro_batches), kUnknown);
    // Arrival time of a pass's input, by position in the pipeline and micro-batch.
    std::vector<std::vector<double>> came_forward(places, unknown), came_backward = came_forward;
    std::ranges::fill(came_forward.front(), 0);
    std::ranges::fill(came_backward.back(), 0);         // needs only the stage's own forward pass
    std::vector<std::vector<train::StagePass>> orders;  // the next pass is the last element
    for (size_t s = 0; s < stages; ++s) {
        const train::PipelinePlace place{static_cast<int>(s), static_cast<int>(stages),
                                         static_cast<int>(chunks)};
        orders.push_back(train::SchedulePasses(place, micro_batches));
        std::ranges::reverse(orders.back());
    }
    PipelineWalk walk{std::vector<double>(stages), std::vector<double>(stages)};
    // Runs the next pass of a stage. Returns false if the arrival time of its input is not known
    // yet.
    const auto run_next = [&](size_t s) {
        if (orders[s].empty()) return false;
        const train::StagePass& pass = orders[s].back();
        const auto chunk = static_cast<size_t>(pass.chunk);
        const auto micro_batch = static_cast<size_t>(pass.micro_batch);
        const size_t place = chunk * stages + s, next = pass.forward ? place + 1 : place - 1;
        auto& came = pass.forward ? came_forward : came_backward;
        const double ready = came[place][micro_batch];
        if (ready == kUnknown) return false;
        const ChunkSeconds& own = seconds[s * chunks + chunk];
        walk.busy[s] += pass.forward ? own.forward : own.backward;
        walk.end[s] = std::max(walk.end[s], ready) + (pass.forward ? own.forward : own.backward);
        if (next < places) {
            came[next][micro_batch] =
                walk.end[s] + (pass.forward ? own.hop_forward : own.hop_backward);
        }
        orders[s].pop_back();
        ++walk.passes;
        return true;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t s = 0; s < stages; ++s) {
            while (run_next(s)) moved = true;
        }
    }
    for (const auto& order : orders) WEFT_CHECK(order.empty());
    return walk;
}

}  // namespace

PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds) {
    WEFT_CHECK(chunks.size() == static_cast<size_t>(stages * chunks_of_a_stage));
    // A partial round is simulated together with the whole rounds.
    const int64_t rest = micro_batches % stages;
    const int64_t more = (micro_batches - rest) / stages - most_rounds;
    const auto walk = [&](int64_t count) {
        return WalkAll(static_cast<size_t>(stages), static_cast<size_t>(chunks_of_a_stage), chunks,
                       count);
    };
    if (more <= 0) return walk(micro_batches);
    PipelineWalk most = walk(most_rounds * stages + rest);
    const PipelineWalk before = walk((most_rounds - 1) * stages + rest);
    most.passes += before.passes;
    for (size_t s = 0; s < most.end.size(); ++s) {
        most.end[s] += static_cast<double>(more) * (most.end[s] - before.end[s]);
        most.busy[s] += static_cast<double>(more) * (most.busy[s] - before.busy[s]);
    }
    return most;
}

double TransferSeconds(std::span<const UnitSeconds> units, bool overlap, double contention) {
    double ops = 0, moved = 0;
    for (const UnitSeconds& unit : units) {
        ops += unit.ops;
        moved += unit.gather + unit.sum;
    }
    if (!overlap || moved == 0) return moved;
    double now = 0, wire = 0;  // ends of the ops and of the transfers so far
    const auto transfer = [&](double seconds) { return wire = std::max(wire, now) + seconds; };
    double gathered = transfer(units[0].gather);
    for (size_t i = 0; i < units.size(); ++i) {
        now = std::max(now, gathered);
        if (i + 1 < units.size()) gathered = transfer(units[i + 1].gather);
        now += units[i].ops;
        transfer(units[i].sum);
    }
    const double waits = std::max(now, wire) - ops;
    return waits + contention * std::max(0.0, moved - waits);
}

}  // namespace weft::plan
