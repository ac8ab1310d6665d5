#include "train/parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace weft::train {
namespace {

// Chunk and micro-batch of all passes in one direction.
std::vector<StagePass> Order(const PipelinePlace& place, int64_t micro_batches, bool forward) {
    std::vector<StagePass> passes;
    const int64_t together = place.chunks == 1 ? 1 : place.stages;
    for (int64_t begin = 0; begin < micro_batches; begin += together) {
        const int64_t end = std::min(begin + together, micro_batches);
        for (int c = 0; c < place.chunks; ++c) {
            const int chunk = forward ? c : place.chunks - 1 - c;
            for (int64_t m = begin; m < end; ++m) passes.push_back({forward, chunk, m, 0});
        }
    }
    return passes;
}

int64_t Ahead(const PipelinePlace& place) {
    const int behind = place.stages - place.stage - 1;
    return place.chunks == 1 ? behind : 2 * behind + (place.chunks - 1) * place.stages;
}

}  // namespace

int SlotsOf(const PipelinePlace& place) {
    return static_cast<int>(Ahead(place)) + 1;
}

int64_t PassesOf(const PipelinePlace& place, int64_t micro_batches) {
    if (place.chunks == 1) return micro_batches;
    return (micro_batches + place.stages - 1) / place.stages * place.stages;
}

std::vector<StagePass> SchedulePasses(const PipelinePlace& place, int64_t micro_batches) {
    WEFT_CHECK(PassesOf(place, micro_batches) == micro_batches);
    const std::vector<StagePass> forward = Order(place, micro_batches, true);
    const std::vector<StagePass> backward = Order(place, micro_batches, false);
    const size_t ahead = std::min(static_cast<size_t>(Ahead(place)), forward.size());
    std::vector<int> free;  // slots
    for (int slot = SlotsOf(place); slot-- > 0;) free.push_back(slot);
    std::map<std::pair<int, int64_t>, int> kept;  // slot by chunk and micro-batch
    std::vector<StagePass> passes;
    const auto go = [&](StagePass pass) {
        const std::pair key{pass.chunk, pass.micro_batch};
        if (pass.forward) {
            WEFT_CHECK(!free.empty());
            pass.slot = free.back();
            free.pop_back();
            kept[key] = pass.slot;
        } else {
            pass.slot = kept.at(key);
            kept.erase(key);
            free.push_back(pass.slot);
        }
        passes.push_back(pass);
    };
    for (size_t i = 0; i < forward.size() + ahead; ++i) {
        if (i < forward.size()) go(forward[i]);
        if (i >= ahead) go(backward[i - ahead]);
    }
    return passes;
}

std::vector<StagePass> ScheduleForward(const PipelinePlace& place, int64_t micro_batches) {
    return Order(place, micro_batches, true);
}

}  // namespace weft::train
