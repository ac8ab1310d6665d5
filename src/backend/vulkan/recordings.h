// Recordings of the steps that came before, made when they are first asked for.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>

#include "backend/vulkan/lowering.h"
#include "backend/vulkan/pace.h"
#include "backend/vulkan/recording.h"
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
               gpu::Device& device, const Pace& pace)
        : program_(program), buffers_(buffers), lowering_(lowering), device_(device), pace_(pace) {}
    // Good until the next call of these. Errors: Recorder's.
    Result<Recording*> Get(const RecordingKey& key);
    // One that is not kept.
    Result<Recording> Make(const RecordingKey& key);
    // It is to be made again.
    void Drop(const RecordingKey& key) { kept_.erase(key); }
    // Tables have moved.
    void Clear() { kept_.clear(); }

  private:
    void DropWhereScratchMoved();

    const program::Program& program_;
    const Buffers& buffers_;
    Lowering& lowering_;
    gpu::Device& device_;
    const Pace& pace_;
    std::map<RecordingKey, Recording> kept_;
    int64_t generation_ = 0;  // of the lowering, that they were made with
};

}  // namespace weft::backend::vulkan
