// HostSignal: lets a running submission wait for the host, so that a sum over ranks does not end
// the submission (--gpu-allreduce spin). A kernel of one workgroup writes its addend to mapped
// memory and polls. The host sums as usual, over any link and wire type, writes the sum to the
// device's inbox and opens the exchange. The bits equal those of separate submissions. In a step of
// one row the same kernel continues with the ops after the sum (residual.comp).
//
// Vulkan guarantees neither that host and device see each other's writes while a submission runs,
// nor that the submission makes progress. So Make tries kTrials exchanges and times them; a signal
// that misses one is not used. (An NVIDIA card caches lines of host memory: a polling kernel does
// not see the host's writes there. It sees them in the card's own memory, which the host writes
// through a mapping.)
// The number of polls is limited, which bounds the waits of a submission to kPatienceSeconds in all
// (drivers end a submission after 2 s). A submission that runs out of polls gives up: its remaining
// kernels do nothing (guard.glsl). Once the host has the sum, it continues the step in submissions
// without a signal.
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
    // Limits of a submission's waits on a GPU, and on a processor that emulates one, where no
    // watchdog runs.
    static constexpr double kPatienceSeconds = 0.25, kHostPatienceSeconds = 5;
    // Largest exchange. A larger sum is faster in a submission of its own.
    static constexpr uint64_t kMostBytes = 64 << 10;

    // Errors: the device's. A signal that does not work is no error; why() then has the reason.
    // patience_seconds: for the waits of a submission.
    static Result<std::unique_ptr<HostSignal>> Make(gpu::Device& device, KernelCache& kernels,
                                                    double patience_seconds);
    bool works() const { return why_.empty(); }
    const std::string& why() const { return why_; }
    // Microseconds of a 2 KiB exchange in the trial.
    double exchange_us() const { return exchange_us_; }
    // Microseconds of an almost empty submission, until the host knows that it is done.
    double submission_us() const { return submission_us_; }

    // ---- Recording
    // Call before the first exchange of submissions that run one after another. All kernels after
    // it must be guarded (KernelCache::Get).
    void RecordBegin(gpu::Commands& commands) const;
    struct Exchange {
        uint64_t x = 0, to_host = 0, y = 0;  // device addresses
        uint32_t count = 0;                  // floats, kMostBytes at most
        uint32_t index = 0;                  // 1 for the first since RecordBegin, 2, ...
    };
    // Records an exchange with barriers before and after it.
    void Record(gpu::Commands& commands, const Exchange& exchange) const;
    // As above, with a kernel that continues with the sum. Its arguments begin with a Head, which
    // Record fills in, and contain the address of y.
    struct Head {
        uint64_t signal = 0, part = 0, to_host = 0, from_host = 0;
        uint32_t count = 0, index = 0;
    };
    void Record(gpu::Commands& commands, const Exchange& exchange, const gpu::Kernel& kernel,
                std::span<std::byte> args) const;

    // ---- Running
    // Call before submitting commands that contain `exchanges` exchanges.
    void Begin(uint32_t exchanges);
    // Waits until the device reaches exchange `index`. False: submission `last` is done without
    // reaching it, because an earlier exchange was given up. Errors: kTimeout, the device's.
    Result<bool> Await(uint32_t index, uint64_t last, const Deadline& deadline);
    // Gives the device `sum`, which is as long as the exchange, and lets it continue.
    void Open(uint32_t index, std::span<const std::byte> sum);
    // Index of the exchange that was given up; 0: none. Call after the submission is done.
    uint32_t GaveUp() const;
    // Number of exchanges opened so far, without the trial's.
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
