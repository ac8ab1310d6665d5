// The kinds of jobs that a worker runs, and commands under a launcher (mpirun, srun, ...). A
// launcher starts the same command line on every rank: rank 0 runs the command, and the others run
// its jobs. Only rank 0 writes to standard output.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "cli/command_line/flags.h"
#include "cli/terminal/output.h"
#include "cluster/join/launched.h"
#include "cluster/worker/job_kind.h"
#include "engine/rank/runner.h"
#include "fabric/measure.h"
#include "fabric/paths.h"
#include "hw/cpu.h"
#include "train/run.h"
#include "train/stop.h"

namespace weft::cli {
namespace {

// Some launchers bind a rank to one core by default.
void WarnOfBinding(const cluster::Launched& launched) {
    const auto mine = static_cast<long>(AllowedCores().size());
    const long all = ::sysconf(_SC_NPROCESSORS_ONLN);
    if (mine * launched.size() >= all) return;
    Log(LogLevel::kWarning,
        "the launcher lets this rank use {} of {} cores. Give it more: --bind-to none (Open MPI, "
        "MPICH), --cpus-per-task (Slurm)",
        mine, all);
}

// Warns that a batch script runs its commands once, whatever the number of tasks in Slurm.
void WarnOfLoneTask() {
    const int tasks = cluster::LoneTaskOf(::getenv);
    if (tasks <= 1) return;
    Log(LogLevel::kWarning,
        "this process is one of {} tasks of a Slurm job, and runs alone. Start a rank per task "
        "with 'srun weft ...', or name ranks with --local or --hosts",
        tasks);
}

// Gives rank 0 time to report the reason: a launcher that sees one rank fail kills the others.
void WaitForRankZero() {
    ::usleep(300'000);
}

// Runs the jobs of rank 0 one after another.
int Follow(cluster::Launched& launched, const cluster::DataPortOptions& data) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    SetLogRank(launched.rank());
    while (true) {
        auto cluster = cluster::Cluster::JoinLaunched(launched, data);
        if (!cluster.ok()) return ExitStatus(cluster.error().code);
        if (*cluster == nullptr) return 0;
        const int status = ServeRankZero(**cluster);
        if (status != 0) return status;
    }
}

bool NamesRanks(const CommonFlags& flags) {
    return flags.cluster.local > 1 || flags.cluster.wait_for > 0 || !flags.hosts.empty() ||
           !flags.hostfile.empty() || !flags.named_cluster.empty();
}

int RunLaunched(CommonFlags& flags, const cluster::Launcher& launcher,
                const std::vector<std::string>& transports, const std::function<int()>& command) {
    const auto wants = [&](const char* name) {
        return std::ranges::find(transports, name) != transports.end();
    };
    auto launched = cluster::Launched::Start(
        launcher, {flags.cluster.key_file, wants("mpi"), wants("auto"), flags.cluster.wait_ms});
    if (!launched.ok()) {
        // Every rank has the same command line, so only rank 0 prints an error about it.
        const bool same = launched.error().code == ErrorCode::kUsage && launcher.rank > 0;
        return same ? LeaveToRankZero(ErrorCode::kUsage) : Fail(launched.error(), flags.json);
    }
    int status;
    if (launcher.rank == 0) {
        WarnOfBinding(**launched);
        flags.cluster.launched = launched->get();
        status = command();
    } else {
        status = Follow(**launched, flags.cluster.data);
    }
    // (A stopped job ends cleanly on all ranks.)
    const bool orderly = status == 0 || status == train::kStoppedStatus;
    if (const Status ended = (*launched)->End(orderly); !ended.ok()) {
        status = Fail(ended.error());
    }
    if (status == 0) return 0;
    // Rank 0 no longer waits for this rank.
    if (launcher.rank > 0) WaitForRankZero();
    // The launcher's library may crash in an orderly exit.
    ::_exit(FinishOutput(status));
}

}  // namespace

cluster::JobKinds AllJobKinds() {
    static constexpr const cluster::JobKind* kKinds[] = {&engine::kModelJob, &fabric::kNetJob,
                                                         &fabric::kPathsJob, &train::kTrainJob};
    return kKinds;
}

int ServeRankZero(cluster::Cluster& cluster) {
    const Status status = cluster::RunJob(cluster, AllJobKinds());
    if (status.ok()) return 0;
    if (cluster.should_report()) Fail(status.error());
    return cluster::JobStatus(cluster, AllJobKinds(), status.error());
}

bool IsFollower() {
    const auto launcher = cluster::FindLauncher(::getenv);
    return launcher.ok() && launcher->has_value() && (*launcher)->rank > 0;
}

int LeaveToRankZero(ErrorCode code) {
    WaitForRankZero();
    return ExitStatus(code);
}

int RunOnRanks(CommonFlags& flags, const std::vector<std::string>& transports,
               const std::function<int()>& command) {
    const auto launcher = cluster::FindLauncher(::getenv);
    if (!launcher.ok()) return Fail(launcher.error(), flags.json);
    if (!launcher->has_value()) {
        if (NamesRanks(flags)) return command();
        if (const Status half = cluster::CheckHalfLauncher(::getenv); !half.ok()) {
            return Fail(half.error(), flags.json);
        }
        WarnOfLoneTask();
        return command();
    }
    if (!NamesRanks(flags)) return RunLaunched(flags, **launcher, transports, command);
    // Only mpirun counts here, because variables of other launchers may come from a parent process.
    if ((*launcher)->mpi.empty()) return command();
    const Error error =
        MakeError(ErrorCode::kUsage,
                  "{} started {} ranks, but --local, --hosts, --hostfile, --cluster or "
                  "--expect-workers requests others. Use one of the two.",
                  (*launcher)->name, (*launcher)->size);
    return (*launcher)->rank > 0 ? LeaveToRankZero(error.code) : Fail(error, flags.json);
}

}  // namespace weft::cli
