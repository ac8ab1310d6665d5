#include "backend/gpu/record/recordings.h"

#include <algorithm>

namespace weft::backend::on_gpu {
namespace {

// A server has one recording for each number of decoding sequences, and some for prompts.
constexpr size_t kMostRecordings = 64;

// The device is faster than estimated, so fewer submissions suffice.
bool IsCutTooFine(const Recording& recording, const SubmissionBudget& budget) {
    return recording.cut && 2 * budget.slowness() < recording.slowness;
}

}  // namespace

void Recordings::DropWhereScratchMoved() {
    if (generation_ != lowering_.generation()) kept_.clear();
    generation_ = lowering_.generation();
}

Result<Recording> Recordings::Make(const RecordingKey& key, const Recorder::RunStage& run) {
    Recorder recorder(program_, buffers_, lowering_, device_, budget_, key.shape, key.options);
    return recorder.Record(key.work, run);
}

Recording* Recordings::Find(const RecordingKey& key) {
    DropWhereScratchMoved();
    const auto found = kept_.find(key);
    if (found == kept_.end()) return nullptr;
    if (IsCutTooFine(found->second, budget_)) {
        kept_.erase(found);
        return nullptr;
    }
    found->second.used = NowNs();
    return &found->second;
}

Result<Recording*> Recordings::Get(const RecordingKey& key) {
    if (Recording* const kept = Find(key)) return kept;
    WEFT_ASSIGN(Recording made, Make(key));
    DropWhereScratchMoved();
    return &Keep(key, std::move(made));
}

// (If scratch memory moved during the run, the first stages are invalid.)
Status Recordings::MakeAndRun(const RecordingKey& key, const Recorder::RunStage& run) {
    DropWhereScratchMoved();
    WEFT_ASSIGN(Recording made, Make(key, run));
    if (generation_ == lowering_.generation()) Keep(key, std::move(made));
    DropWhereScratchMoved();
    return {};
}

Recording& Recordings::Keep(const RecordingKey& key, Recording made) {
    if (kept_.size() >= kMostRecordings) {
        kept_.erase(std::ranges::min_element(kept_, {},
                                             [](const auto& entry) { return entry.second.used; }));
    }
    made.used = NowNs();
    return kept_.insert_or_assign(key, std::move(made)).first->second;
}

}  // namespace weft::backend::on_gpu
