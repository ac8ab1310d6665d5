// Bytes to the device: written in place where its memory is mapped, else through a ring of mapped
// buffers and copies on the device.
//
// Thread: any number of callers of Put at once; Finish alone.
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
#include "backend/vulkan/context.h"
#include "backend/vulkan/weights.h"
#include "program/program.h"

namespace weft::backend::vulkan {

class Uploader {
  public:
    explicit Uploader(Context& context) : context_(context) {}

    // Bytes [at, at + bytes) of a buffer.
    struct Range {
        const gpu::Buffer* to = nullptr;
        uint64_t at = 0, bytes = 0;
    };
    // fill writes what ranges[i] is to hold to the i-th of the addresses it is given. All ranges
    // are of one buffer.
    using Fill = std::function<void(std::span<std::byte* const>)>;
    Status Put(std::span<const Range> ranges, const Fill& fill);
    // Returns once all that was put is there, and frees the ring.
    Status Finish();

  private:
    struct Slot {
        gpu::Buffer memory;
        std::unique_ptr<gpu::Commands> commands;  // of its last copies
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
    std::mutex mutex_;  // of `taken`
    std::condition_variable given_back_;
};

// One weight from its source to `to`, from byte `at` on: a matrix or a stack of matrices in planes,
// vectors as floats. Errors: the source's, the device's.
Status LoadMatrix(const program::Value& value, const WeightLayout& layout, const gpu::Buffer& to,
                  uint64_t at, const RowSource& source, Uploader& uploader);
Status LoadVectors(const program::Value& value, const gpu::Buffer& to, uint64_t at,
                   const RowSource& source, Uploader& uploader);

}  // namespace weft::backend::vulkan
