// TransferLog: times, waits and checksums of an Executable's transfers, for reports, traces and
// tests of replicas. Thread: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "base/hash.h"
#include "program/program.h"

namespace weft::backend {

class TransferLog {
  public:
    // If checking is on, checksum() covers the result of every all-reduce and all-gather of the
    // last step. The checksum must be the same on all ranks of the tensor group.
    void SetChecking(bool on) { checking_ = on; }
    bool checking() const { return checking_; }
    uint64_t checksum() const { return checksum_; }
    // Microseconds that each all-reduce of the last step spent on the wire, without the wait for
    // the slowest rank. Needs no extra clock reads.
    std::span<const float> all_reduce_us() const { return all_reduce_us_; }
    // Seconds spent waiting for other ranks, over all steps.
    double waited_s() const { return static_cast<double>(waited_ns_) * 1e-9; }
    // Seconds, over all steps, in which the device computed nothing because it waited for
    // transfers.
    double idle_s() const { return static_cast<double>(idle_ns_) * 1e-9; }
    // When the slowest rank arrived at the last noted transfer; 0: unknown.
    int64_t last_arrival_ns() const { return last_arrival_ns_; }

    // Called by the device. Begin() marks the begin of a step.
    void Begin();
    void NoteIdle(int64_t ns) { idle_ns_ += ns; }
    // Notes a successful transfer. Call it before the next transfer of the same group. result: the
    // result if it is the same on all ranks; otherwise empty.
    void Note(const program::Op& op, std::span<const std::byte> result, const Communicators& groups,
              int64_t took_ns);

  private:
    bool checking_ = false;
    uint64_t checksum_ = 0;
    std::vector<float> all_reduce_us_;
    int64_t waited_ns_ = 0, idle_ns_ = 0, last_arrival_ns_ = 0;
};

}  // namespace weft::backend
