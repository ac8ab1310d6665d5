// The memory of this host that the jobs of one worker have claimed, so that two jobs that load at
// the same time do not both count on the same free memory.
//
// The worker makes a file without a name (memfd) with a slot per job, and each job's process opens
// it. Before a job loads, it writes its needs into its slot and subtracts what the other jobs have
// claimed but not filled yet. A lock on the file (flock) makes this one step. The worker clears the
// slot of a process that has ended, however it ended, and the file ends with the worker and its
// jobs: no claim outlives its job.
//
// Thread: main, except NoteLoaded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace weft::cluster {

// The bytes that a rank still needs from one memory of its machine: main memory, a device's memory,
// or the limit of a container.
struct MemoryNeed {
    std::string
        memory;  // "": the machine's own; else a name without tabs and line ends: "vulkan:0"
    uint64_t needed_bytes = 0;
    uint64_t free_bytes = 0;  // 0: unknown
    // Whether the memory counts as resident in the process as it fills. False: it counts as filled
    // once the job has loaded.
    bool resident = true;
    uint64_t claimed_bytes = 0;  // of the free bytes, by other jobs of the same worker
    std::string claimants{};     // these jobs
};

// "training of 10.0.0.1:40312, for 95 s". pid: of the job's process on this host.
std::string JobText(pid_t pid, const std::string& from, int64_t began_ns);

class MemoryClaims {
  public:
    // No claims of others.
    MemoryClaims() = default;
    // Worker. Errors: kIo.
    static Result<MemoryClaims> Make();
    // Job. word: from WordOf. Errors: kUsage, kIo.
    static Result<MemoryClaims> Open(const std::string& word);
    std::string WordOf(size_t slot) const;

    // Worker: a job's process is about to begin, or has ended.
    void Begin(size_t slot, uint64_t ticket, const std::string& from) const;
    void Clear(size_t slot) const;
    // Job: sets claimed_bytes and claimants, and claims the needs if they fit. Replaces the job's
    // earlier claims. Errors: kTimeout (another process holds the lock), kIo.
    Status Claim(std::span<MemoryNeed> needs) const;
    // Job: releases its claims.
    void Release() const;
    // Job: everything that is not `resident` has been filled. Thread: any.
    void NoteLoaded() const;

  private:
    void CountOthers(uint64_t ticket, MemoryNeed& need) const;

    Fd fd_;
    size_t slot_ = 0;  // the job's
};

}  // namespace weft::cluster
