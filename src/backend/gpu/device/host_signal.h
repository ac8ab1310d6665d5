// HostSignal: lets a running submission wait for the host, so that a sum over ranks does not end
// the submission (--gpu-allreduce spin). One such wait is called an exchange. A kernel of one
// workgroup writes this rank's addend to mapped memory and polls. The host computes the sum over
// ranks as usual, over any link and wire type. Then it writes the sum to a buffer that the kernel
// reads (the inbox) and opens the exchange: the kernel stops polling and continues. The result has
// the same bits as with separate submissions. In a step of one row the same kernel continues with
// the ops after the sum (residual.comp).
//
// Vulkan guarantees neither that host and device see each other's writes while a submission runs,
// nor that the submission makes progress. So Make() tries kTrials exchanges and times them. If an
// exchange fails, the signal is not used. (An NVIDIA card caches lines of host memory, so a polling
// kernel would not see the host's later writes. The kernel sees writes to the card's own memory, so
// the inbox is in that memory, and the host writes to it through a mapping.) Drivers end a
// submission after 2 s, so the number of polls is limited: all waits of a submission together take
// at most kPatienceSeconds. A submission that reaches the limit cancels the exchange: its remaining
// kernels do nothing (guard.glsl). Once the host has the sum, it continues the step with
// submissions that have no exchanges.
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

namespace weft::backend::on_gpu {

class KernelCache;

class HostSignal {
  public:
    static constexpr int kTrials = 1000, kLargeTrials = 100;  // exchanges of 2 KiB and of
                                                              // kMostBytes
    // Time limits of all waits of a submission, on a GPU and on a processor that emulates a GPU.
    // The processor has no watchdog.
    static constexpr double kPatienceSeconds = 0.25, kHostPatienceSeconds = 5;
    // Size of the largest exchange. A larger sum is faster if it ends the submission.
    static constexpr uint64_t kMostBytes = 64 << 10;

    // Errors: those of the device. If the signal does not work, Make still returns an object, whose
    // works() is false and whose why() returns the reason. patience_seconds: time limit of all
    // waits of a submission.
    static Result<std::unique_ptr<HostSignal>> Make(gpu::Device& device, KernelCache& kernels,
                                                    double patience_seconds);
    bool works() const { return why_.empty(); }
    const std::string& why() const { return why_; }
    // Microseconds of a 2 KiB exchange in the trial.
    double exchange_us() const { return exchange_us_; }
    // Microseconds from the start of an almost empty submission until the host notices that the
    // submission is done.
    double submission_us() const { return submission_us_; }

    // ---- Recording
    // Call this before recording the first exchange of a sequence of submissions. All kernels
    // recorded after it must be guarded (Guard::kStopWord).
    void RecordBegin(gpu::Commands& commands) const;
    struct Exchange {
        uint64_t x = 0, to_host = 0, y = 0;  // device addresses
        uint32_t count = 0;                  // floats, kMostBytes at most
        uint32_t index = 0;                  // 1 for the first since RecordBegin, 2, ...; and
                                             // PeerSums::IndexBits of a sum through windows
    };
    // Records an exchange with barriers before and after it.
    void Record(gpu::Commands& commands, const Exchange& exchange) const;
    // Records an exchange with a kernel of the caller, which waits for the sum and then uses it.
    // The kernel's arguments `args` begin with a Head, which Record() fills in, and contain the
    // address of y.
    struct Head {
        uint64_t signal = 0, part = 0, to_host = 0, from_host = 0;
        uint32_t count = 0, index = 0;
    };
    void Record(gpu::Commands& commands, const Exchange& exchange, const gpu::Kernel& kernel,
                std::span<std::byte> args) const;
    // Records a copy of `words` words of 4 bytes to memory of the host, for an exchange behind it.
    void RecordHanded(gpu::Commands& commands, uint64_t from, uint64_t to, uint32_t words) const;
    // Tells the host, after a barrier, that the device has reached exchange `index`: Await()
    // returns while the commands between this one and the exchange run.
    void RecordPost(gpu::Commands& commands, uint32_t index) const;

    // ---- Running
    // Call this before submitting commands that contain `exchanges` exchanges. windows:
    // PeerSums::table, if some of them are sums through windows.
    void Begin(uint32_t exchanges, uint64_t windows = 0);
    // Waits until the device reaches exchange `index`. Returns false if submission `last` ended
    // without reaching this exchange, because an earlier exchange was cancelled. Errors: kTimeout,
    // the device's errors.
    Result<bool> Await(uint32_t index, uint64_t last, const Deadline& deadline);
    // Gives `sum`, which has the size of the exchange, to the device and lets the submission
    // continue. Empty: all ranks' windows are ready.
    void Open(uint32_t index, std::span<const std::byte> sum);
    // Index of the exchange that the submission gave up; 0: none. Call this after the submission is
    // done.
    uint32_t GaveUp() const;
    // Number of exchanges opened so far, without the exchanges of the trial.
    int64_t exchanges() const { return opened_; }

  private:
    HostSignal(gpu::Device& device, double patience_seconds)
        : device_(device), patience_seconds_(patience_seconds) {}
    Status Allocate(KernelCache& kernels, gpu::Place inbox);
    Status Try();
    Status Calibrate();
    Status TimeSubmissions();
    // handed: of values that the device hands over before the exchange.
    Status TryExchanges(uint32_t floats, int trials, bool handed);
    void RecordTrialHandOver(gpu::Commands& commands, uint32_t index) const;
    Result<double> RunUnanswered(uint32_t polls);
    Result<float> RunTrials(const gpu::Commands& commands, uint32_t count, uint32_t floats);
    Exchange TrialExchange(uint32_t index, uint32_t floats) const;
    void SetMostPolls(uint32_t polls);
    uint32_t* Word(uint32_t index) const;
    uint32_t* InboxWord(uint32_t index) const;

    gpu::Device& device_;
    const double patience_seconds_;
    const gpu::Kernel* kernel_ = nullptr;
    const gpu::Kernel* hand_over_ = nullptr;
    const gpu::Kernel* post_ = nullptr;
    gpu::Buffer words_;  // kernels write, the host reads
    gpu::Buffer inbox_;  // the host writes, kernels read: words, and a sum
    gpu::Buffer trial_, trial_host_;
    uint32_t base_ = 0, exchanges_ = 0;
    double exchange_us_ = 0, submission_us_ = 0;
    int64_t opened_ = 0;
    std::string why_;
};

}  // namespace weft::backend::on_gpu
