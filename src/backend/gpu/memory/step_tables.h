// Data that differs between steps, in mapped memory that kernels read: token ids, positions, the
// sequence of each row, pages. Tables keep their addresses between steps, so recordings stay valid.
// The tables of pages and page copies may grow; then their addresses change, and all recordings
// become invalid.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/executable.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/dispatch/update_scalars.h"
#include "backend/step.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

// adapts: whether the Program has adapters.
StepShape ShapeOf(const Step& step, bool adapts);

class TableMemory {
  public:
    // The sizes of both buffers of Allocate. The second one, the tables of pages, may grow later.
    static std::array<uint64_t, 2> Sizes(const CompileOptions& options);
    static uint64_t Bytes(const CompileOptions& options) {
        const std::array sizes = Sizes(options);
        return sizes[0] + sizes[1];
    }
    Status Allocate(gpu::Device& device, const CompileOptions& options);
    // Grows the tables if this step needs larger ones, and returns whether their addresses changed.
    // No submission may be under way.
    Result<bool> MakeSpace(gpu::Device& device, const Step& step);
    void Write(const Step& step);
    const StepTables& tables() const { return tables_; }
    // The update scalars. The addresses of the scalars never change.
    UpdateScalars scalars() const;
    uint64_t size_bytes() const { return fixed_.size_bytes() + pages_.size_bytes(); }

  private:
    Status AllocatePages(gpu::Device& device, int64_t pages, int64_t copies);

    StepTables tables_;
    uint64_t scalars_ = 0;
    gpu::Buffer fixed_, pages_;
    int64_t page_tokens_ = 0, most_pages_ = 0, most_copies_ = 0;
    bool has_state_ = false;
};

}  // namespace weft::backend::on_gpu
