// What a step left, read by the host: elements of a kept value, and the best of a row, which the step
// itself may have found. And commands that run by themselves.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "backend/top.h"
#include "backend/vulkan/buffers.h"
#include "backend/vulkan/context.h"
#include "backend/vulkan/lowering.h"
#include "base/result.h"

namespace weft::backend::vulkan {

// Commands of these dispatches, with barriers.
Result<std::unique_ptr<gpu::Commands>> RecordAlone(gpu::Device& device,
                                                   std::span<const Dispatch> dispatches);
// Submits and waits.
Status RunAlone(gpu::Device& device, const gpu::Commands& commands, int64_t deadline_ms);

class Reading {
  public:
    Reading(Context& context, const Buffers& buffers, Lowering& lowering)
        : context_(context), buffers_(buffers), lowering_(lowering) {}
    // As Executable has them.
    Status Read(program::ValueId id, int64_t first, std::span<float> out, int64_t deadline_ms);
    Status ReadTop(program::ValueId id, int64_t row, int64_t columns, std::span<Candidate> out,
                   int64_t deadline_ms);

    // Which best the last step found by itself, of so many rows: they are in Buffers::tops().
    void NoteTop(const WantedTop& top, int64_t rows) {
        found_ = top;
        found_rows_ = rows;
    }

  private:
    bool Found(program::ValueId id, int64_t row, int64_t columns, std::span<Candidate> out) const;
    // What a recording of ReadTop is made for.
    struct TopKey {
        program::ValueId id = 0;
        int64_t row = 0, columns = 0, count = 0;
        auto operator<=>(const TopKey&) const = default;
    };
    Result<const gpu::Commands*> TopCommands(const TopKey& key);

    Context& context_;
    const Buffers& buffers_;
    Lowering& lowering_;
    std::map<TopKey, std::unique_ptr<gpu::Commands>> tops_;
    int64_t generation_ = 0;
    WantedTop found_;
    int64_t found_rows_ = 0;
};

}  // namespace weft::backend::vulkan
