// Reads results of a step: elements of a kept value, and the largest elements of a row. If the last
// step has already copied a result to mapped host memory (NoteBrought), the result is read from
// there. RecordAlone and RunAlone record and run dispatches outside of a step.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "backend/executable.h"
#include "backend/gpu/device/context.h"
#include "backend/gpu/memory/buffers.h"
#include "backend/gpu/record/lowering.h"
#include "backend/top.h"
#include "base/result.h"

namespace weft::backend::on_gpu {

// Records these dispatches, with barriers between dependent ones.
Result<std::unique_ptr<gpu::Commands>> RecordAlone(gpu::Device& device,
                                                   std::span<const Dispatch> dispatches);
// Submits the commands and waits until they are done.
Status RunAlone(gpu::Device& device, const gpu::Commands& commands, int64_t deadline_ms);

class Reading {
  public:
    Reading(Context& context, const Buffers& buffers, Lowering& lowering)
        : context_(context), buffers_(buffers), lowering_(lowering) {}
    // As Executable::ReadAll and ReadTopK. Each submission reads up to Buffers::kReadBytes.
    Status Read(std::span<const ReadPart> parts, int slot, int64_t deadline_ms);
    // Whether the last step has copied these bytes to the host; then `out` has them.
    bool ReadBrought(program::ValueId id, uint64_t first_byte, std::span<std::byte> out) const;
    Status ReadTopK(program::ValueId id, int slot, int64_t row, int64_t columns,
                    std::span<Candidate> out, int64_t deadline_ms);

    // As Executable::HostFloats: elements of rows that the last step copied to the host.
    std::span<const float> HostFloats(program::ValueId id, int64_t first, int64_t count) const;

    // Notes the results that the last step copied to the host, for `rows` rows.
    void NoteBrought(const WantedRows& wanted, int64_t rows) {
        brought_ = wanted;
        brought_rows_ = rows;
    }

  private:
    // A copy from the device to bytes of the mapped memory, from `at` on.
    struct Copied {
        std::span<std::byte> out;
        uint64_t at;
    };
    bool HasTop(program::ValueId id, int64_t row, int64_t columns, std::span<Candidate> out) const;
    // Everything that a recording of ReadTopK depends on.
    struct TopKey {
        program::ValueId id = 0;
        int slot = 0;
        int64_t row = 0, columns = 0, count = 0;
        auto operator<=>(const TopKey&) const = default;
    };
    Result<const gpu::Commands*> TopCommands(const TopKey& key);

    Context& context_;
    const Buffers& buffers_;
    Lowering& lowering_;
    std::map<TopKey, std::unique_ptr<gpu::Commands>> tops_;
    int64_t generation_ = 0;
    WantedRows brought_;
    int64_t brought_rows_ = 0;
};

}  // namespace weft::backend::on_gpu
