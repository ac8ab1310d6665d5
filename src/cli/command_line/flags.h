// Flags shared by several subcommands: hosts and ranks, the layout, and the computation. Also
// reports errors and exit statuses of commands.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/command_line/options.h"
#include "cli/models/model_names.h"
#include "cli/terminal/output.h"
#include "cluster/cluster.h"
#include "cluster/worker/job_kind.h"
#include "engine/drafts/drafting.h"
#include "engine/job.h"
#include "fabric/paths.h"

namespace weft::cli {

// --local, --hosts, --hostfile, --cluster, --expect-workers, --listen, --wait, --transport,
// --rdma-device, --gid-index, --checksum, --timeout-ms, --key-file, --tp, --pp, --tensor-split, -t,
// --ctx, --prefill-chunk, --kv-dtype, --allreduce-dtype, --gpu-allreduce, --reference, --exact,
// --trace, --verify; and --json.
struct CommonFlags {
    static constexpr int64_t kAutomaticContext = -1;  // the context that the command needs
    cluster::ClusterOptions cluster;
    engine::Job job;
    std::string hosts, hostfile, named_cluster, wait, split, kv = "f16", trace_file,
                                                             net_table = "auto";
    std::string overlap = "auto", wire = "auto", prompt_wire = "auto", gpu_sum = "auto";
    bool cpu_moe = false;
    int n_cpu_moe = -1;
    std::string experts, override_tensor;
    std::string lora;                       // a folder
    std::vector<std::string> needed_hosts;  // with --cluster: FindCluster's `needed`
    bool new_hosts = false;
    bool hosts_beyond = false;               // hosts may be no neighbors: FindCluster's `beyond`
    std::vector<std::string> missing_hosts;  // FindCluster's `missing`, if Resolve failed
    int64_t ctx = kAutomaticContext;         // 0: the model's context
    int weights_from = -1;
    bool json = false, pull = false;
    Command command;  // with --local
};

// Returns the help of MODEL, which lists the forms of a model's name.
std::string ModelHelp();
// Adds MODEL to a subcommand. pull: set by --pull, which SetCallback executes. needed: MODEL is
// required.
void AddModel(const Command& app, std::string& model, bool& pull, bool needed = true);
void AddDataPortOptions(const Command& app,
                        cluster::DataPortOptions& data);  // --data-ports, --advertise
void AddJobsOption(const Command& app, int& jobs);
void AddFoldersOption(const Command& app, std::vector<std::string>& folders);  // --folders
// Arguments of the process of a job's rank, besides its handle. folders: FolderLimit::folders.
std::vector<std::string> WorkerArguments(const cluster::DataPortOptions& data,
                                         const std::vector<std::string>& folders);
void AddRankFlags(const Command& app, CommonFlags& flags);      // hosts and ranks, and --net-table
void AddClusterFlags(const Command& app, CommonFlags& flags);   // AddRankFlags, and --tensor-split
void AddLayoutFlags(const Command& app, CommonFlags& flags);    // --tp, --pp, --transport
void AddRecoveryFlags(const Command& app, CommonFlags& flags);  // --restart-timeout-ms, --elastic
void AddDraftFlags(const Command& app, engine::DraftOptions& draft);
void AddEngineFlags(const Command& app, CommonFlags& flags);
// --cache-dir, --cache-disk, --cache-ram.
void AddKeptPages(const Command& app, engine::Job& job);
void AddSlots(const Command& app, engine::Job& job);
void AddLora(const Command& app, CommonFlags& flags);       // --lora with one adapter
Option AddDevice(const Command& app, std::string& device);  // one device for all ranks
// --device of training: one for all ranks, or one per rank.
void AddTrainDevices(const Command& app, std::string& devices);
void AddJson(const Command& app, bool& json);

// Converts parsed words to options. kUsage if they contradict each other.
Status Resolve(CommonFlags& flags);
// Sets the number of local ranks if neither hosts nor a launcher name ranks: the product of the
// layout's flags (name, value; 0: not given), or --local. kUsage: --local is not a multiple of the
// product.
Status ResolveLocal(CommonFlags& flags, const std::vector<std::pair<const char*, int>>& layout);
// The part of Resolve for --hosts, --hostfile, --cluster, --expect-workers and --wait. Queries the
// hosts of a cluster, which takes a second.
Status ResolveHosts(CommonFlags& flags);
// Makes Ctrl-C end the ranks from here on. Resolve calls it.
void CatchStop(CommonFlags& flags);

// Prints `error` on standard error (and as JSON on standard output if requested, unless the result
// was printed already) and returns the exit status. With JSON logs, the error is a log line.
int Fail(const Error& error, bool json = false);

// Runs `command`, which returns the exit status. If a launcher (mpirun, srun, ...) started this
// process as a rank other than 0, serves rank 0 instead. transports: the transports that may be
// used.
int RunOnRanks(CommonFlags& flags, const std::vector<std::string>& transports,
               const std::function<int()>& command);
// All kinds of jobs that a worker runs.
cluster::JobKinds AllJobKinds();
// Runs the job of rank 0 on another rank, to its end. Prints an error that rank 0 does not print.
// Returns the exit status.
int ServeRankZero(cluster::Cluster& cluster);
// Whether a launcher started this process as a rank other than 0.
bool IsFollower();
// The exit status of such a rank for an error that rank 0 reports. Waits briefly first: a launcher
// that sees one rank fail kills the others, perhaps before rank 0's report.
int LeaveToRankZero(ErrorCode code);

// For a command with a MODEL: resolves the word and executes --pull, also for data sets.
template <typename Flags>
Status FindModelFirst(Flags& flags) {
    if constexpr (requires { flags.job.trainer.model; }) {
        WEFT_TRY(FindData(flags.job.data.data, flags.job.trainer.model, flags.common.pull));
        return FindModel(flags.job.trainer.model, flags.common.pull);
    } else if constexpr (requires { flags.common.job.model; }) {
        return FindModel(flags.common.job.model, flags.common.pull);
    } else if constexpr (requires {
                             flags.model;
                             flags.pull;
                         }) {
        if constexpr (requires { flags.data.data; }) {
            WEFT_TRY(FindData(flags.data.data, flags.model, flags.pull));
        }
        return FindModel(flags.model, flags.pull);
    }
    return {};
}

// The usual callback of `command`: runs run(*flags) and prints its error. A command of several
// ranks uses a launcher's ranks, if there are any.
template <typename Flags, typename Function>
void SetCallback(const Command& command, std::shared_ptr<Flags> flags, const bool& json,
                 int& status, Function run) {
    command.Callback([flags, &json, &status, run] {
        const auto run_here = [&] {
            if constexpr (requires { flags->Begin(); }) flags->Begin();
            Status done = FindModelFirst(*flags);
            if (done.ok()) done = run(*flags);
            if constexpr (requires { flags->common.cluster; }) {
                if (!done.ok()) {
                    done = fabric::WithPathFaults(done.error(), flags->common.cluster);
                }
            }
            return FinishOutput(done.ok() ? 0 : Fail(done.error(), json));
        };
        if constexpr (requires { flags->common.cluster; }) {
            std::vector<std::string> transports = {flags->common.cluster.transport};
            if constexpr (requires { flags->transports; }) transports = flags->transports;
            status = RunOnRanks(flags->common, transports, run_here);
        } else {
            status = run_here();
        }
    });
}

// SetCallback, after adding --json.
template <typename Flags, typename Function>
void SetJsonCallback(const Command& command, std::shared_ptr<Flags> flags, int& status,
                     Function run) {
    AddJson(command, flags->json);
    SetCallback(command, flags, flags->json, status, run);
}

}  // namespace weft::cli
