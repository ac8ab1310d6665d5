// Flags that several subcommands share, the same everywhere: where ranks run, how the model is cut,
// how it is computed. And how commands end in an error.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/model_names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"
#include "engine/drafting.h"
#include "engine/job.h"
#include "fabric/paths.h"

namespace weft::cli {

// --local, --hosts, --hostfile, --cluster, --expect-workers, --listen, --wait, --transport,
// --rdma-device, --gid-index, --checksum, --timeout-ms,
// --key-file, --tp, --pp, --tensor-split, -t, --ctx, --prefill-chunk, --kv-dtype,
// --allreduce-dtype, --gpu-allreduce, --reference, --exact, --trace, --verify; and --json.
struct CommonFlags {
    static constexpr int64_t kAutomaticContext = -1;  // what the command needs
    cluster::ClusterOptions cluster;
    engine::Job job;
    std::string hosts, hostfile, named_cluster, wait, split, kv = "f16", trace_file,
                                                             net_table = "auto";
    std::string overlap = "auto", wire = "auto", gpu_sum = "auto";
    std::string lora;  // a folder
    std::vector<std::string> needed_hosts;   // with --cluster: fleet::FindCluster's `needed`
    std::vector<std::string> missing_hosts;  // and its `missing`, where Resolve failed
    int64_t ctx = kAutomaticContext;  // 0: the model's context
    int weights_from = -1;
    bool json = false, pull = false;
    Command command;  // with --local
};

// Adds MODEL and the shared flags to a subcommand.
// pull: set by --pull, which SetCallback obeys. needed: refused without MODEL.
void AddModel(const Command& app, std::string& model, bool& pull, bool needed = true);
void AddDataPortOptions(const Command& app,
                        cluster::DataPortOptions& data);  // --data-ports, --advertise
// What the process of a job's rank is started with, besides its handle.
std::vector<std::string> WorkerArguments(const cluster::DataPortOptions& data);
void AddRankFlags(const Command& app, CommonFlags& flags);      // where ranks run, and --net-table
void AddClusterFlags(const Command& app, CommonFlags& flags);   // that, and --tensor-split
void AddLayoutFlags(const Command& app, CommonFlags& flags);    // --tp, --pp, --transport
void AddRecoveryFlags(const Command& app, CommonFlags& flags);  // --restart-timeout-ms, --elastic
void AddDraftFlags(const Command& app, engine::DraftOptions& draft);
void AddEngineFlags(const Command& app, CommonFlags& flags);
void AddLora(const Command& app, CommonFlags& flags);       // --lora of one adapter
Option AddDevice(const Command& app, std::string& device);  // one for all ranks
// --device of training: one for all ranks, or one for each.
void AddTrainDevices(const Command& app, std::string& devices);
void AddJson(const Command& app, bool& json);

// Turns the words into options, once they are parsed. kUsage where they contradict each other.
Status Resolve(CommonFlags& flags);
// Ranks on this machine, where neither hosts nor a launcher name them: the product of the layout's
// flags (name, value; 0: not given), unless --local says how many. kUsage: --local does not start a
// multiple of it.
Status ResolveLocal(CommonFlags& flags, const std::vector<std::pair<const char*, int>>& layout);
// The part of it that is about --hosts, --hostfile, --cluster, --expect-workers and --wait. Hosts
// of a cluster are asked who they are: that takes a second.
Status ResolveHosts(CommonFlags& flags);
// From here on Ctrl-C ends the ranks; part of Resolve, too.
void CatchStop(CommonFlags& flags);

// Prints `error` on standard error (as JSON on standard output too where asked) and returns the
// exit status.
int Fail(const Error& error, bool json = false);

// Runs `command`, which returns the exit status; but where a launcher (mpirun, srun, ...) started
// this process as another rank than 0, serves rank 0 instead. transports: those it may use.
int RunOnRanks(CommonFlags& flags, const std::vector<std::string>& transports,
               const std::function<int()>& command);
// All kinds of jobs that a worker runs.
cluster::JobKinds AllJobKinds();
// Runs the job of rank 0 on another rank, to its end. Prints its error where rank 0 does not.
// Returns the exit status.
int ServeRankZero(cluster::Cluster& cluster);
// Whether a launcher started this process as another rank than 0.
bool IsFollower();
// The exit status of such a rank for an error that rank 0 says. It waits a moment first: a launcher
// that sees one rank fail kills the others, and rank 0 may not have said it yet.
int LeaveToRankZero(ErrorCode code);

// Of a command with a MODEL: finds out what the word means, and obeys --pull.
template <typename Flags>
Status FindModelFirst(Flags& flags) {
    if constexpr (requires { flags.job.trainer.model; }) {
        return FindModel(flags.job.trainer.model, flags.common.pull);
    } else if constexpr (requires { flags.common.job.model; }) {
        return FindModel(flags.common.job.model, flags.common.pull);
    } else if constexpr (requires {
                             flags.model;
                             flags.pull;
                         }) {
        return FindModel(flags.model, flags.pull);
    }
    return {};
}

// What most commands do with flags: run(*flags) is the callback of `command`; its error is printed.
// Commands of several ranks run on those of a launcher, if there is one.
template <typename Flags, typename Function>
void SetCallback(const Command& command, std::shared_ptr<Flags> flags, const bool& json,
                 int& status, Function run) {
    command.Callback([flags, &json, &status, run] {
        const auto run_here = [&] {
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

}  // namespace weft::cli
