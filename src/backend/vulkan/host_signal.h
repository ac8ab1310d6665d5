// HostSignal: where a submission waits for the host in its midst, so that a sum over ranks does not
// end it (--gpu-allreduce spin). A kernel of one workgroup gives the host its addend in mapped
// memory and polls; the host sums as it always does, over any link and wire, puts the sum into the
// device's inbox, and opens. The bits are those of
// separate submissions. In a step of one row the kernel goes on with what is done with the sum
// (residual.comp).
//
// Vulkan promises neither that the two see each other's writes while a submission runs, nor that
// it goes on: Make tries kTrials exchanges and times them, and a signal that misses one is not
// used. (An NVIDIA card keeps lines of the host's memory in its cache: of what the host writes
// there, a kernel that polls sees nothing. In the card's own memory, by its window, it does.)
// Waits are bounded by polls, kPatienceSeconds in all for a submission (drivers end what takes 2
// s). A submission whose polls run out is given up: its other kernels do nothing (guard.glsl), and
// the host, when it has its sum, goes on from there in submissions without a signal.
//
// Thread: one caller, with no other submission under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/deadline.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::vulkan {

class KernelCache;

class HostSignal {
  public:
    static constexpr int kTrials = 1000, kLargeTrials = 100;  // of 2 KiB, of kMostBytes
    // Of a GPU; of a processor that stands in for one, which no watchdog looks after.
    static constexpr double kPatienceSeconds = 0.25, kHostPatienceSeconds = 5;
    // Of an exchange: more is faster in a submission of its own.
    static constexpr uint64_t kMostBytes = 64 << 10;

    // Errors: the device's. A signal that does not work is none: why() says so.
    // patience_seconds: for the waits of a submission.
    static Result<std::unique_ptr<HostSignal>> Make(gpu::Device& device, KernelCache& kernels,
                                                    double patience_seconds);
    bool works() const { return why_.empty(); }
    const std::string& why() const { return why_; }
    // Microseconds of an exchange of 2 KiB, when it was tried.
    double exchange_us() const { return exchange_us_; }
    // Of a submission that does next to nothing, until the host knows that it is done.
    double submission_us() const { return submission_us_; }

    // ---- Recording
    // Before the first exchange of submissions that run one behind the other. All kernels behind
    // it are guarded ones (KernelCache::Get).
    void RecordBegin(gpu::Commands& commands) const;
    struct Exchange {
        uint64_t x = 0, to_host = 0, y = 0;  // device addresses
        uint32_t count = 0;                  // floats, kMostBytes at most
        uint32_t index = 0;                  // 1 for the first since RecordBegin, 2, ...
    };
    // With barriers before and behind it.
    void Record(gpu::Commands& commands, const Exchange& exchange) const;
    // The same by a kernel that goes on with the sum: its arguments begin with a Head, which is
    // filled in here, and have the place of y.
    struct Head {
        uint64_t signal = 0, part = 0, to_host = 0, from_host = 0;
        uint32_t count = 0, index = 0;
    };
    void Record(gpu::Commands& commands, const Exchange& exchange, const gpu::Kernel& kernel,
                std::span<std::byte> args) const;

    // ---- Running
    // Before the submission of what has `exchanges`.
    void Begin(uint32_t exchanges);
    // Until the device is at exchange `index`. False: submission `last` is done, and it never came
    // there: an exchange before was given up. Errors: kTimeout, the device's.
    Result<bool> Await(uint32_t index, uint64_t last, const Deadline& deadline);
    // With what the device goes on with: `sum`, as long as the exchange.
    void Open(uint32_t index, std::span<const std::byte> sum);
    // Once the submission is done: the exchange that was given up; 0: none.
    uint32_t GaveUp() const;
    // That were opened so far, the trial's left out.
    int64_t exchanges() const { return opened_; }

  private:
    HostSignal(gpu::Device& device, double patience_seconds)
        : device_(device), patience_seconds_(patience_seconds) {}
    Status Allocate(KernelCache& kernels, gpu::Place inbox);
    Status Try();
    Status Calibrate();
    Status TimeSubmissions();
    Status TryExchanges(uint32_t floats, int trials);
    Result<double> RunUnanswered(uint32_t polls);
    Result<float> RunTrials(const gpu::Commands& commands, uint32_t count, uint32_t floats);
    Exchange TrialExchange(uint32_t index, uint32_t floats) const;
    void SetMostPolls(uint32_t polls);
    uint32_t* Word(uint32_t index) const;
    uint32_t* InboxWord(uint32_t index) const;

    gpu::Device& device_;
    const double patience_seconds_;
    const gpu::Kernel* kernel_ = nullptr;
    gpu::Buffer words_;  // kernels write, the host reads
    gpu::Buffer inbox_;  // the host writes, kernels read: words, and a sum
    gpu::Buffer trial_, trial_host_;
    uint32_t base_ = 0, exchanges_ = 0;
    double exchange_us_ = 0, submission_us_ = 0;
    int64_t opened_ = 0;
    std::string why_;
};

}  // namespace weft::backend::vulkan
