// Signals that ask a training job to stop: SIGTERM, SIGINT, SIGUSR1 and SIGHUP, as Slurm,
// Kubernetes, `timeout`, a terminal and an ssh session that ends send them, to one process of a
// job, some or all.
//
// While a model is loaded and data are read there is nothing to save: the first signal ends the
// job on all ranks. While it learns, the signal is a wish, which every update looks at and hands to
// all ranks (Trainer): they save together and end. While the result is written, it is let finish.
// A second signal, kRepeatMs after the first or later, ends the job at once; what launchers send
// twice is one signal, and SIGHUP, which says nothing about hurry, never is the second.
//
// A signal handler reaches nothing but what is global: this is the process's one StopRequest.
#pragma once

#include <atomic>
#include <cstdint>

#include "cluster/cluster.h"

namespace weft::train {

// What `weft train` exits with where it was asked to stop, and --resume auto goes on: sysexits.h's
// EX_TEMPFAIL, "try again later".
inline constexpr int kStoppedStatus = 75;
inline constexpr int64_t kRepeatMs = 500;
// Environment variable: how often the job's command was started before; unset: never.
inline constexpr char kRestartVariable[] = "WEFT_RESTART";

// From here on these signals are caught; SIGINT is ignored where `interrupts` says so, and SIGHUP
// stays ignored where it was (nohup). What a command line made of them before is what they do
// until there is a cluster.
void CatchStops(bool interrupts);
// Whether SIGINT is ignored, as shells have it for what they run in the background, and nohup's
// like.
bool InterruptsIgnored();
// Whether a signal came, in whatever phase.
bool StopRequested();
// Whether a second one ended what the first had begun.
bool EndedAtOnce();

// While a job runs on this process; the signals are its own.
class StopScope {
  public:
    // saves: there is a folder to save to; else signals end the job at once in every phase.
    StopScope(cluster::Cluster& cluster, bool saves);
    ~StopScope();
    StopScope(const StopScope&) = delete;
    StopScope& operator=(const StopScope&) = delete;

    enum class Phase {
        kLoading,   // ends at once
        kLearning,  // StopRequested
        kWriting,   // goes on to its end
    };
    void Enter(Phase phase);

  private:
    bool saves_;
};

}  // namespace weft::train
