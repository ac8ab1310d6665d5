// weft worker: a rank of a job that another host starts. With --listen, rank 0 calls it; with
// --join, it dials rank 0; with --handle (used by weft itself) it is one rank of one job.
#include <algorithm>
#include <cmath>

#include "base/confine.h"
#include "base/folder_limit.h"
#include "base/log.h"
#include "cli/command_line/duration.h"
#include "cli/commands.h"
#include "cluster/socket.h"
#include "cluster/worker/job_child.h"

namespace weft::cli {
namespace {

struct WorkerFlags {
    std::string listen, key_file, wait, handle, claims;
    cluster::WorkerJoiner::Options join;
    cluster::DataPortOptions data;
    std::vector<std::string> folders;
    int jobs = 1;
};

Status CheckWords(const WorkerFlags& flags) {
    const bool listens = !flags.listen.empty(), joins = !flags.join.join.empty();
    if (listens && joins) {
        return MakeError(ErrorCode::kUsage,
                         "--listen and --join exclude each other: either rank 0 connects to the "
                         "worker, or the worker to rank 0");
    }
    if (!joins && (flags.join.rank > 0 || flags.join.once || !flags.wait.empty())) {
        return MakeError(ErrorCode::kUsage, "--rank, --once and --wait need --join HOST:PORT");
    }
    if (joins && flags.jobs != 1) {
        return MakeError(ErrorCode::kUsage,
                         "--jobs {} needs --listen: a worker that joins rank 0 runs one job. Start "
                         "several such workers",
                         flags.jobs);
    }
    if ((!listens && !joins) || flags.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "a worker needs --listen HOST:PORT (or --join HOST:PORT of rank 0) and "
                         "--key-file FILE (the same key on "
                         "every host: 'head -c 32 /dev/urandom | base64 > weft.key; chmod 600 "
                         "weft.key' makes one)");
    }
    return {};
}

Status Listen(const WorkerFlags& flags) {
    cluster::WorkerListener::Options options;
    options.listen = cluster::WithWorkerPort(flags.listen);
    options.key_file = flags.key_file;
    options.worker_arguments = WorkerArguments(flags.data, flags.folders);
    options.jobs = flags.jobs;
    WEFT_ASSIGN(const auto listener, cluster::WorkerListener::Open(options));
    Log(LogLevel::kInfo, "listening on {} (port {}); Ctrl-C ends", options.listen,
        listener->port());
    return listener->Run();
}

Result<int> DialIn(const WorkerFlags& flags) {
    cluster::WorkerJoiner::Options options = flags.join;
    options.join = cluster::WithWorkerPort(options.join);
    options.key_file = flags.key_file;
    options.worker_arguments = WorkerArguments(flags.data, flags.folders);
    if (!flags.wait.empty()) {
        WEFT_ASSIGN(const double wait_s, ParseTime("--wait", flags.wait));
        options.wait_ms = std::max<int64_t>(1, std::llround(wait_s * 1000));
    }
    WEFT_ASSIGN(const auto joiner, cluster::WorkerJoiner::Open(options));
    return joiner->Run();
}

Result<int> ServeRanks(WorkerFlags& flags) {
    WEFT_TRY(CheckWords(flags));
    WEFT_ASSIGN(const FolderLimit limit, FolderLimit::Make(flags.folders));
    flags.folders = limit.folders();
    WEFT_TRY(cluster::CheckDataPortOptions(flags.data));
    if (!flags.join.join.empty()) return DialIn(flags);
    WEFT_TRY(Listen(flags));
    return 0;
}

int BeRank(const WorkerFlags& flags) {
    const auto examine = [](const cluster::JoinRequest& exam) {
        return cluster::ExamineJob(exam, AllJobKinds());
    };
    const auto folders = FolderLimit::Make(flags.folders);
    if (!folders.ok()) return Fail(folders.error());
    if (const Status confined = Confine(*folders); !confined.ok()) return Fail(confined.error());
    Result<cluster::MemoryClaims> claims = cluster::MemoryClaims();
    if (!flags.claims.empty()) claims = cluster::MemoryClaims::Open(flags.claims);
    if (!claims.ok()) return Fail(claims.error());
    auto cluster = cluster::Cluster::Join(flags.handle, flags.data, examine, *folders);
    if (!cluster.ok()) return ExitStatus(cluster.error().code);
    (*cluster)->SetClaims(*std::move(claims));
    SetLogRank((*cluster)->rank());
    const cluster::JobKind* kind = cluster::FindJobKind((*cluster)->job(), AllJobKinds());
    if (kind != nullptr) cluster::SetJobKind(kind->activity);
    return ServeRankZero(**cluster);
}

}  // namespace

void AddWorker(const Command& app, int& status) {
    auto flags = std::make_shared<WorkerFlags>();
    const Command worker = app.AddCommand("worker", "Run ranks of jobs that other hosts start");
    worker.AddOption("--listen HOST:PORT", flags->listen,
                     "Accept calls of rank 0 (--hosts) at this address");
    worker.AddOption("--join HOST:PORT", flags->join.join,
                     "Connect to rank 0 (--expect-workers) at this address (port 7000), and retry");
    worker.AddOption("--key-file", flags->key_file, "File with the key shared with rank 0");
    worker.AddNumber("--rank N", flags->join.rank, 1, 4095,
                     "With --join: request this rank (default: any)");
    worker.AddFlag("--once", flags->join.once,
                   "With --join: end after the first job, with its status");
    worker.AddOption(
        "--wait TIME", flags->wait,
        "With --join: give up after this time without a job, as 90s or 10m (default: never)");
    AddJobsOption(worker, flags->jobs);
    AddFoldersOption(worker, flags->folders);
    AddDataPortOptions(worker, flags->data);
    worker.AddOption("--handle", flags->handle, "").Group("");
    worker.AddOption("--claims", flags->claims, "").Group("");
    worker.Footer(
        "Each job runs in a process of its own; Ctrl-C ends the worker. Callers of a busy worker "
        "wait in line as long as their --wait.\n\n"
        "Examples:\n"
        "  head -c 32 /dev/urandom | base64 > weft.key && chmod 600 weft.key\n"
        "  weft worker --listen 0.0.0.0:7000 --key-file weft.key\n"
        "  weft run model.gguf -p \"Hello\" --hosts b:7000 --key-file weft.key   (on the first "
        "host)\n"
        "or, where only the first host can be reached:\n"
        "  weft worker --join a:7000 --key-file weft.key\n"
        "  weft run model.gguf -p \"Hello\" --expect-workers 1 --key-file weft.key     (on the "
        "first "
        "host)");
    worker.Callback([flags, &status] {
        if (!flags->handle.empty()) {
            status = BeRank(*flags);
            return;
        }
        const Result<int> served = ServeRanks(*flags);
        status = served.ok() ? *served : Fail(served.error());
    });
}

}  // namespace weft::cli
