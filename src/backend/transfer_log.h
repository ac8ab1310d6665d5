// TransferLog: what the transfers of an Executable cost, and what they left, for reports, traces
// and the tests of replicas. One thread at a time.
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
    // With checking on: a checksum over every all-reduce's and all-gather's result of the last
    // step, which must be the same on all ranks of the tensor group.
    void SetChecking(bool on) { checking_ = on; }
    uint64_t checksum() const { return checksum_; }
    // What each all-reduce of the last step cost on the wire, microseconds, waiting for the slower
    // rank left out: costs no clock reads of its own.
    std::span<const float> all_reduce_us() const { return all_reduce_us_; }
    // Seconds that were spent waiting for other ranks, over all steps.
    double waited_s() const { return static_cast<double>(waited_ns_) * 1e-9; }
    // Seconds in which nothing was computed, over all steps: transfers that the device waited for.
    double idle_s() const { return static_cast<double>(idle_ns_) * 1e-9; }
    // When the slowest rank arrived at the last transfer that was noted; 0: not known.
    int64_t last_arrival_ns() const { return last_arrival_ns_; }

    // By the device. A step begins.
    void Begin();
    void NoteIdle(int64_t ns) { idle_ns_ += ns; }
    // A transfer ended well, and is the last one of its group. result: of all ranks; empty: none.
    void Note(const program::Op& op, std::span<const std::byte> result, const Communicators& groups,
              int64_t took_ns);

  private:
    bool checking_ = false;
    uint64_t checksum_ = 0;
    std::vector<float> all_reduce_us_;
    int64_t waited_ns_ = 0, idle_ns_ = 0, last_arrival_ns_ = 0;
};

}  // namespace weft::backend
