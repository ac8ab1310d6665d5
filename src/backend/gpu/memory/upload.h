// Uploads bytes to the device. If the device memory is mapped, the host writes to it directly.
// Otherwise the host writes to one of several mapped buffers, from which the device copies.
//
// Thread: any number of concurrent callers of Put; Finish must run alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "backend/gpu/device/context.h"
#include "backend/gpu/dispatch/weights.h"
#include "program/program.h"

namespace weft::backend::on_gpu {

class Uploader {
  public:
    explicit Uploader(Context& context) : context_(context) {}

    // Bytes [at, at + bytes) of a buffer.
    struct Range {
        const gpu::Buffer* to = nullptr;
        uint64_t at = 0, bytes = 0;
    };
    // Uploads the contents of `ranges`. `fill` gets one host address per range and writes the
    // contents of ranges[i] to the i-th address.
    using Fill = std::function<void(std::span<std::byte* const>)>;
    Status Put(std::span<const Range> ranges, const Fill& fill);
    // Waits until all bytes have arrived, and frees the mapped buffers.
    Status Finish();

  private:
    struct Slot {
        gpu::Buffer memory;
        std::unique_ptr<gpu::Commands> commands;  // commands of the last copies from this buffer
        uint64_t submission = 0;
        bool taken = false;
    };
    Slot& TakeSlot();
    void GiveBack(Slot& slot);
    Status Prepare(Slot& slot, uint64_t bytes);
    Status Copy(Slot& slot, std::span<const Range> ranges);

    static constexpr size_t kSlots = 4;
    Context& context_;
    Slot slots_[kSlots];
    std::mutex mutex_;  // guards `taken`
    std::condition_variable given_back_;
};

// Loads one weight from `source` into `to`, from byte `at` on. LoadMatrix loads a matrix or a stack
// of matrices as planes, LoadVectors loads vectors as float32. Errors: errors of `source` and of
// the device. part: which of several shares of the rows to load.
struct LoadPart {
    int64_t part = 0, parts = 1;
};
Status LoadMatrix(const program::Value& value, const WeightLayout& layout, const gpu::Buffer& to,
                  uint64_t at, const RowSource& source, Uploader& uploader, LoadPart part = {});
Status LoadVectors(const program::Value& value, const gpu::Buffer& to, uint64_t at,
                   const RowSource& source, Uploader& uploader);

}  // namespace weft::backend::on_gpu
