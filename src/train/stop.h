// Signals that ask a training job to stop: SIGTERM, SIGINT, SIGUSR1 and SIGHUP. Slurm, Kubernetes,
// `timeout`, a terminal and a closing ssh session send them to one, some or all processes of a job.
//
// While the job loads the model and data, there is nothing to save: the first signal ends it on all
// ranks. During training, the signal is a request that every update shares with all ranks
// (Trainer), which then save together and end. If the job is writing its result, it finishes the
// result first. A second signal at least kRepeatMs after the first ends the job at once. Launchers
// may send a signal twice, so earlier repetitions count as one signal; SIGHUP never counts as the
// second one.
//
// A signal handler reaches only globals, so this file keeps one state per process.
#pragma once

#include <atomic>
#include <cstdint>

#include "cluster/cluster.h"

namespace weft::train {

// Exit status of `weft train` after a stop request, if --resume auto can continue: EX_TEMPFAIL of
// sysexits.h, "try again later".
inline constexpr int kStoppedStatus = 75;
inline constexpr int64_t kRepeatMs = 500;
// Environment variable with the number of earlier starts of the job's command; unset: 0.
inline constexpr char kRestartVariable[] = "WEFT_RESTART";

// Catches these signals from here on. Ignores SIGINT unless `interrupts`. SIGHUP stays ignored if
// it was (nohup). Until there is a cluster, signals keep the effect that the command line gave
// them.
void CatchStops(bool interrupts);
// Whether SIGINT is ignored: shells and nohup-like programs set this for background processes.
bool InterruptsIgnored();
// Whether a signal came, in any phase.
bool StopRequested();
// Whether a second signal ended the job at once.
bool EndedAtOnce();

// The scope of a job on this process; signals act on this job.
class StopScope {
  public:
    // saves: there is a folder to save to; otherwise signals end the job at once in every phase.
    StopScope(cluster::Cluster& cluster, bool saves);
    ~StopScope();
    StopScope(const StopScope&) = delete;
    StopScope& operator=(const StopScope&) = delete;

    enum class Phase {
        kLoading,   // ends at once
        kLearning,  // StopRequested
        kWriting,   // finishes first
    };
    void Enter(Phase phase);

  private:
    bool saves_;
};

}  // namespace weft::train
