// PeerSums: sums over the ranks of one host through the memory of their GPUs (CUDA's and HIP's
// IPC), over NVLink, XGMI or PCIe. Each rank has a window in its device's memory, and maps the
// windows of all others. For a sum, each device writes its addend to its window; the ranks wait for
// each other (coll::Comm::Barrier); and each device adds the addends in all windows in rank order.
// So data do not pass through host memory, and sums have the bits of one-shot sums of float32.
//
// A window has two halves for consecutive sums: the barrier of a sum shows that all ranks have read
// the windows of the sum before it. The hosts also meet before the first sum of a Run.
//
// Make() tries the windows and compares bits and times with sums through host memory. All ranks
// make the same decision.
//
// Thread: one caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device/kernel_cache.h"
#include "base/result.h"
#include "coll/comm.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

class PeerSums {
  public:
    // kNever: this rank requires sums through host memory. kAlways: all sums go through windows,
    // even if that is slower, unless another rank has kNever.
    enum class Use { kNever, kIfFaster, kAlways };
    // A collective call of all ranks of `comm`. most_bytes: size of the largest sum. Errors: errors
    // of links, and of the device in the trial. If windows cannot be used or are slower, Make still
    // returns an object, and why() has the reason.
    static Result<std::unique_ptr<PeerSums>> Make(gpu::Device& device, KernelCache& kernels,
                                                  coll::Comm& comm, uint64_t most_bytes, Use use);
    bool works() const { return why_.empty(); }
    const std::string& why() const { return why_; }
    // "16 KiB in 20 us (through host memory 30), ..."; "" without a trial.
    const std::string& times() const { return times_; }
    // Whether a sum of this size goes through windows.
    bool Takes(uint64_t bytes) const {
        return works() && bytes >= least_bytes_ && bytes <= most_bytes_;
    }
    // Memory of the device that this object holds.
    uint64_t held_bytes() const { return window_.size_bytes(); }

    // Records that the device writes `count` floats at address x to half `half` of its window.
    void RecordWrite(gpu::Commands& commands, uint64_t x, int half, uint32_t count,
                     Guard guard) const;
    // Records the sum of `count` floats in that half of all windows into address y.
    void RecordSum(gpu::Commands& commands, uint64_t y, int half, uint32_t count,
                   Guard guard) const;
    // The address of half `half` of this rank's window.
    uint64_t Window(int half) const {
        return window_.address() + static_cast<uint64_t>(half) * half_bytes_;
    }
    // For sums within a submission (exchange.glsl): the table of windows, and bits of the index.
    uint64_t table() const { return table_.address(); }
    uint32_t IndexBits(int half) const {
        return static_cast<uint32_t>(comm_.size()) << 16 | static_cast<uint32_t>(half) << 24;
    }

  private:
    static constexpr size_t kSizes = 2;  // sizes of the trial
    // Seconds of a sum of each size: through host memory, and through windows.
    using Times = std::array<std::array<double, 2>, kSizes>;
    struct Said;  // what a rank sends to the others
    PeerSums(gpu::Device& device, coll::Comm& comm, uint64_t most_bytes)
        : device_(device), comm_(comm), half_bytes_((most_bytes + 255) / 256 * 256) {}
    Status Begin(KernelCache& kernels, Use use);
    Status Allocate(KernelCache& kernels, gpu::SharedHandle& handle);
    Result<std::vector<Said>> Tell(Said own, const Status& status);
    Status OpenOthers(std::span<const Said> all);
    Status Try(Times& seconds, Status& differs);
    Status Compare(uint64_t bytes, std::array<double, 2>& seconds, Status& differs);
    Status Run(const gpu::Commands& commands);
    void Decide(std::span<const Said> all);

    gpu::Device& device_;
    coll::Comm& comm_;
    const uint64_t half_bytes_;
    uint64_t least_bytes_ = 0, most_bytes_ = 0;
    std::array<const gpu::Kernel*, 2> write_{}, sum_{};  // by Guard
    gpu::Buffer window_, table_;
    gpu::Buffer x_, y_, host_;  // of the trial
    std::vector<gpu::Buffer> others_;
    std::string why_, times_;
};

}  // namespace weft::backend::on_gpu
