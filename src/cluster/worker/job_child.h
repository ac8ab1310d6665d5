// Starts, watches and ends the process that runs a job's rank for a worker. So a job changes
// nothing in the worker's own process. Thread: main, with WorkerSignals() blocked and read from a
// signalfd.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

// SIGCHLD, and the signals that end a worker: SIGINT, SIGTERM and, unless it is ignored, SIGHUP.
sigset_t WorkerSignals();

// Blocks WorkerSignals() in the calling thread, and in threads that it starts, while it exists. A
// signal that arrives meanwhile stays pending for a signalfd.
class BlockedWorkerSignals {
  public:
    BlockedWorkerSignals();
    ~BlockedWorkerSignals();
    BlockedWorkerSignals(const BlockedWorkerSignals&) = delete;
    BlockedWorkerSignals& operator=(const BlockedWorkerSignals&) = delete;

  private:
    sigset_t before_;
};

// Reads a signalfd for WorkerSignals(). Returns whether a signal stops the worker. hangups: whether
// SIGHUP counts. (A closed terminal causes it twice: from the kernel and from the shell.)
bool TakeSignals(const Fd& signals, bool hangups = true);

// Sets the name of a rank's process (comm of proc(5)) while it works on a job, so that its worker
// can show it. kind: at most 15 bytes, such as "training".
void SetJobKind(const char* kind);

class JobChild {
  public:
    JobChild() = default;
    ~JobChild() { Kill(); }
    JobChild(const JobChild&) = delete;
    JobChild& operator=(const JobChild&) = delete;

    bool runs() const { return pid_ != 0; }
    // "training of 10.0.0.1:40312, for 95 s"; "": no job runs.
    std::string About() const;
    // arguments, cores: as for SpawnRank. from: sender of the job, for the log. Returns false if
    // the process could not be started; the log has the reason.
    bool Start(const std::vector<std::string>& arguments, Fd control, const Session& session,
               const std::string& from, std::span<const int> cores);
    struct Ended {
        int status = 0;  // its exit status, or 128 + signal
        bool killed = false;
    };
    // When the process has ended, reports it once. Kills a process that was stopped (SIGSTOP) for
    // longer than the job's timeout, because the other ranks then consider it lost.
    std::optional<Ended> Check();
    int64_t timeout_ms() const { return timeout_ms_; }
    // Time for which Check has nothing to do, unless a signal arrives.
    int64_t NapMs() const;
    // Signals the ranks to end; each first notifies the other ranks of its job, or saves with them.
    // Ends them at once after another signal, and ranks whose process is stopped at once.
    static void End(std::span<JobChild> jobs, const Fd& signals);

  private:
    void Kill();

    pid_t pid_ = 0;
    std::string from_;
    int64_t began_ns_ = 0;
    int64_t timeout_ms_ = 0;
    std::optional<Deadline> stopped_{};  // while it is stopped: when to kill it
};

}  // namespace weft::cluster
