// The process that runs a job's rank for a worker: started, watched and ended. Nothing of a job
// stays in the worker itself. Thread: main, with WorkerSignals() blocked and read from a signalfd.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

// SIGCHLD, and what asks a worker to end: SIGINT, SIGTERM and, unless it is ignored, SIGHUP.
sigset_t WorkerSignals();
// What has come in on a signalfd of these: whether the worker was asked to end. hangups: SIGHUP
// counts. (A terminal that is closed sends it twice: by the kernel and by the shell.)
bool TakeSignals(const Fd& signals, bool hangups = true);

// What a rank's process calls itself (comm of proc(5)) while it works on a job, so that its worker
// can tell: kind is at most kMostKind bytes, such as "training".
inline constexpr size_t kMostKind = 15;
void SetJobKind(const char* kind);

class JobChild {
  public:
    ~JobChild() { Kill(); }

    bool runs() const { return pid_ != 0; }
    // "training of 10.0.0.1:40312, for 95 s"; "" where none runs.
    std::string About() const;
    // arguments: of SpawnRank. from: who gives the job, for the log. False: no process could be
    // started (the log says why).
    bool Start(const std::vector<std::string>& arguments, Fd control, const Session& session,
               const std::string& from);
    // Looks whether it ended: then its exit status (128 + signal), once. One that is stopped for
    // longer than the job's timeout is killed: the others have declared it lost.
    std::optional<int> Check();
    // Until when Check has nothing to do unless a signal comes.
    int64_t NapMs() const;
    // Its rank says goodbye to the others, or saves together with them, and ends. Another signal
    // hurries it, and so does that it is stopped.
    void End(const Fd& signals);

  private:
    void Kill();

    pid_t pid_ = 0;
    std::string from_;
    int64_t began_ns_ = 0;
    int64_t timeout_ms_ = 0;
    std::optional<Deadline> stopped_{};  // while it is stopped: until when that is borne
};

}  // namespace weft::cluster
