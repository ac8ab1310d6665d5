// Recordings of the steps that came before, made when they are first asked for.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>

#include "backend/vulkan/lowering.h"
#include "backend/vulkan/recording.h"
#include "backend/vulkan/submission_budget.h"
#include "base/result.h"

namespace weft::backend::vulkan {

// All that a recording is made of.
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
    // Null: none is kept. Good until the next call of these.
    Recording* Find(const RecordingKey& key);
    // The same, made and kept where there is none. Errors: Recorder's.
    Result<Recording*> Get(const RecordingKey& key);
    // Makes one, whose stages run meanwhile, and keeps it. Errors: those, and `run`'s.
    Status MakeAndRun(const RecordingKey& key, const Recorder::RunStage& run);
    // One that is not kept.
    Result<Recording> Make(const RecordingKey& key, const Recorder::RunStage& run = nullptr);
    // It is to be made again.
    void Drop(const RecordingKey& key) { kept_.erase(key); }
    // Tables have moved.
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
    int64_t generation_ = 0;  // of the lowering, that they were made with
};

}  // namespace weft::backend::vulkan
