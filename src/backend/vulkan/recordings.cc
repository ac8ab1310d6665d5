#include "backend/vulkan/recordings.h"

#include <algorithm>

namespace weft::backend::vulkan {
namespace {

// A server has one for each number of sequences that decode, and some of prompts.
constexpr size_t kMostRecordings = 64;

// The device has turned out to be faster: fewer submissions will do.
bool IsCutTooFine(const Recording& recording, const Pace& pace) {
    return recording.cut && 2 * pace.slowness() < recording.slowness;
}

}  // namespace

void Recordings::DropWhereScratchMoved() {
    if (generation_ != lowering_.generation()) kept_.clear();
    generation_ = lowering_.generation();
}

Result<Recording> Recordings::Make(const RecordingKey& key) {
    Recorder recorder(program_, buffers_, lowering_, device_, pace_, key.shape, key.options);
    return recorder.Record(key.work);
}

Result<Recording*> Recordings::Get(const RecordingKey& key) {
    DropWhereScratchMoved();
    auto found = kept_.find(key);
    if (found != kept_.end() && IsCutTooFine(found->second, pace_)) {
        kept_.erase(found);
        found = kept_.end();
    }
    if (found == kept_.end()) {
        WEFT_ASSIGN(Recording made, Make(key));
        DropWhereScratchMoved();
        if (kept_.size() >= kMostRecordings) {
            kept_.erase(std::ranges::min_element(
                kept_, {}, [](const auto& entry) { return entry.second.used; }));
        }
        found = kept_.emplace(key, std::move(made)).first;
    }
    found->second.used = NowNs();
    return &found->second;
}

}  // namespace weft::backend::vulkan
