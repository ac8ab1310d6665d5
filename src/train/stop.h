// Handles the signals that stop a training job: SIGTERM, SIGINT, SIGUSR1 and SIGHUP. Slurm,
// Kubernetes, `timeout`, a terminal and a closing ssh session send these to one, some or all
// processes of a job.
//
// While the job loads the model and data, there is nothing to save, so the first signal ends the
// job on all ranks. During training, each update carries to all ranks whether a rank received a
// signal (Trainer); the ranks then save together and end. If the job is writing its result, it
// finishes the result first. A second signal at least kRepeatMs after the first ends the job at
// once. Launchers may send a signal twice, so a repetition before that time does not count. SIGHUP
// never counts as a second signal.
//
// A signal handler can only use global state, so this file has one state per process.
#pragma once

#include <atomic>
#include <cstdint>

#include "cluster/cluster.h"

namespace weft::train {

// Exit status of `weft train` after a stop request, if --resume auto can continue the job:
// EX_TEMPFAIL of sysexits.h.
inline constexpr int kStoppedStatus = 75;
inline constexpr int64_t kRepeatMs = 500;
// Environment variable with the number of earlier starts of the job's command; unset: 0.
inline constexpr char kRestartVariable[] = "WEFT_RESTART";

// Catches these signals from now on. Ignores SIGINT if `interrupts` is false. SIGHUP stays ignored
// if it was ignored before (nohup). Until there is a StopScope, the signals have the effect that
// they had before.
void CatchStops(bool interrupts);
// Whether SIGINT is ignored: shells and nohup-like programs set this for background processes.
bool InterruptsIgnored();
// Whether a signal has come, in any phase.
bool StopRequested();
// Whether a second signal ended the job at once.
bool EndedAtOnce();

// While this object exists, signals act on the job of `cluster`.
class StopScope {
  public:
    // saves: whether the job can save to a folder; if not, signals end it at once in every phase.
    StopScope(cluster::Cluster& cluster, bool saves);
    ~StopScope();
    StopScope(const StopScope&) = delete;
    StopScope& operator=(const StopScope&) = delete;

    enum class Phase {
        kLoading,   // a signal ends the job at once
        kLearning,  // a signal sets StopRequested
        kWriting,   // the job first finishes the result
    };
    void Enter(Phase phase);

  private:
    bool saves_;
};

}  // namespace weft::train
