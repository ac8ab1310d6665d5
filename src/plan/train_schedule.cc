#include "plan/train_schedule.h"

#include <algorithm>

#include "base/check.h"
#include "train/parallel/pipeline.h"

namespace weft::plan {
namespace {

constexpr double kNotYet = -1;

class Walker {
  public:
    Walker(int stages, int chunks, std::span<const ChunkSeconds> seconds, int64_t micro_batches)
        : stages_(stages), chunks_(chunks), seconds_(seconds), micro_batches_(micro_batches) {}

    PipelineWalk Run() {
        const size_t places = static_cast<size_t>(stages_ * chunks_);
        const size_t all = places * static_cast<size_t>(micro_batches_);
        came_forward_.assign(all, kNotYet);
        came_backward_.assign(all, kNotYet);
        for (int64_t m = 0; m < micro_batches_; ++m) {
            came_forward_[At(0, m)] = 0;
            came_backward_[At(stages_ * chunks_ - 1, m)] = 0;  // its own forward pass comes before
        }
        for (int s = 0; s < stages_; ++s) {
            orders_.push_back(train::SchedulePasses({s, stages_, chunks_}, micro_batches_));
        }
        next_.assign(orders_.size(), 0);
        walk_.end.assign(orders_.size(), 0);
        walk_.busy.assign(orders_.size(), 0);
        for (bool moved = true; moved;) {
            moved = false;
            for (int s = 0; s < stages_; ++s) {
                while (Step(s)) moved = true;
            }
        }
        for (size_t s = 0; s < orders_.size(); ++s) WEFT_CHECK(next_[s] == orders_[s].size());
        return std::move(walk_);
    }

  private:
    size_t At(int place, int64_t micro_batch) const {
        return static_cast<size_t>(place * micro_batches_ + micro_batch);
    }

    // Runs the next pass of a stage if the arrival times of its inputs are known.
    bool Step(int stage) {
        const size_t s = static_cast<size_t>(stage);
        if (next_[s] == orders_[s].size()) return false;
        const train::StagePass& pass = orders_[s][next_[s]];
        const int place = pass.chunk * stages_ + stage;
        const size_t at = At(place, pass.micro_batch);
        const double came = pass.forward ? came_forward_[at] : came_backward_[at];
        if (came == kNotYet) return false;
        const ChunkSeconds& seconds = seconds_[static_cast<size_t>(stage * chunks_ + pass.chunk)];
        const double hop = pass.forward ? seconds.hop_forward : seconds.hop_backward;
        const double own = pass.forward ? seconds.forward : seconds.backward;
        const double done = std::max(walk_.end[s], came) + own;
        const bool sends = pass.forward ? place + 1 < stages_ * chunks_ : place > 0;
        if (sends && pass.forward) came_forward_[At(place + 1, pass.micro_batch)] = done + hop;
        if (sends && !pass.forward) came_backward_[At(place - 1, pass.micro_batch)] = done + hop;
        walk_.end[s] = done;
        walk_.busy[s] += own;
        ++walk_.passes;
        ++next_[s];
        return true;
    }

    const int stages_, chunks_;
    const std::span<const ChunkSeconds> seconds_;
    const int64_t micro_batches_;
    // by position in the pipeline and micro-batch
    std::vector<double> came_forward_, came_backward_;
    std::vector<std::vector<train::StagePass>> orders_;
    std::vector<size_t> next_;
    PipelineWalk walk_;
};

}  // namespace

PipelineWalk WalkPipeline(int stages, int chunks_of_a_stage, std::span<const ChunkSeconds> chunks,
                          int64_t micro_batches, int64_t most_rounds) {
    WEFT_CHECK(chunks.size() == static_cast<size_t>(stages * chunks_of_a_stage));
    const auto walk = [&](int64_t count) {
        return Walker(stages, chunks_of_a_stage, chunks, count).Run();
    };
    const int64_t round = stages;
    if (micro_batches <= most_rounds * round) return walk(micro_batches);
    // The remainder of a round is walked with the other rounds.
    const int64_t rest = micro_batches % round;
    PipelineWalk most = walk(most_rounds * round + rest);
    const PipelineWalk before = walk((most_rounds - 1) * round + rest);
    const auto more = static_cast<double>((micro_batches - rest) / round - most_rounds);
    for (size_t s = 0; s < most.end.size(); ++s) {
        most.end[s] += more * (most.end[s] - before.end[s]);
        most.busy[s] += more * (most.busy[s] - before.busy[s]);
    }
    most.passes += before.passes;
    return most;
}

}  // namespace weft::plan
