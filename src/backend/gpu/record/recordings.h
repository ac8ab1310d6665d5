// Cache of recordings of earlier steps, created on demand.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>

#include "backend/gpu/record/lowering.h"
#include "backend/gpu/record/recording.h"
#include "backend/gpu/record/submission_budget.h"
#include "base/result.h"

namespace weft::backend::on_gpu {

// Everything that a recording depends on.
struct RecordingKey {
    StepShape shape;
    StepWork work;
    RecordOptions options;
    auto operator<=>(const RecordingKey&) const = default;
};

class Recordings {
  public:
    Recordings(const program::Program& program, const Buffers& buffers, Lowering& lowering,
               gpu::Device& device, const SubmissionBudget& budget)
        : program_(program),
          buffers_(buffers),
          lowering_(lowering),
          device_(device),
          budget_(budget) {}
    // Returns the cached recording for `key`, or null. The pointer is valid until the next call of
    // a function of this class.
    Recording* Find(const RecordingKey& key);
    // Returns the cached recording for `key`. Creates and caches a recording if the cache has none
    // for `key`. Errors: as Recorder.
    Result<Recording*> Get(const RecordingKey& key);
    // Creates and caches a recording, and runs each stage as soon as it is recorded. Errors: as
    // Get; errors of `run`.
    Status MakeAndRun(const RecordingKey& key, const Recorder::RunStage& run);
    // Creates a recording without keeping it.
    Result<Recording> Make(const RecordingKey& key, const Recorder::RunStage& run = nullptr);
    // Drops a recording, so that the next Get creates it again.
    void Drop(const RecordingKey& key) { kept_.erase(key); }
    // Drops all recordings, because tables have moved.
    void Clear() { kept_.clear(); }

  private:
    void DropWhereScratchMoved();
    Recording& Keep(const RecordingKey& key, Recording made);

    const program::Program& program_;
    const Buffers& buffers_;
    Lowering& lowering_;
    gpu::Device& device_;
    const SubmissionBudget& budget_;
    std::map<RecordingKey, Recording> kept_;
    int64_t generation_ = 0;  // Lowering::generation() when the recordings were created
};

}  // namespace weft::backend::on_gpu
