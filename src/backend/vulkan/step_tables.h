// What differs from step to step, in mapped memory that kernels read: token ids, positions, which
// sequence a row belongs to, pages. Where each table lies does not change from step to step, so
// that recordings stay good; but tables of pages grow, and then all recordings end.
#pragma once

#include <cstdint>
#include <span>

#include "backend/executable.h"
#include "backend/step.h"
#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/update_scalars.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::vulkan {

// adapts: whether the Program has adapters.
StepShape ShapeOf(const Step& step, bool adapts);

class TableMemory {
  public:
    // Bytes that Allocate takes; more where the tables of pages grow.
    static uint64_t Bytes(const CompileOptions& options);
    Status Allocate(gpu::Device& device, const CompileOptions& options);
    // Whether the tables must move for this step. No submission may be under way.
    Result<bool> MakeRoom(gpu::Device& device, const Step& step);
    void Write(const Step& step);
    const StepTables& tables() const { return tables_; }
    // Of updates; it does not move.
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

}  // namespace weft::backend::vulkan
