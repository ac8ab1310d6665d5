// weft worker: a rank of somebody else's job. With --listen it serves one job after another; with
// --join (used by weft itself) it is one rank of one job.
#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "train/stop.h"

namespace weft::cli {
namespace {

struct WorkerFlags {
    cluster::WorkerListener::Options listen;
    std::string join;
};

Status Listen(const WorkerFlags& flags) {
    if (flags.listen.listen.empty() || flags.listen.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "a worker needs --listen HOST:PORT and --key-file FILE (the same key on "
                         "every host: 'head -c 32 /dev/urandom | base64 > weft.key; chmod 600 "
                         "weft.key' makes one)");
    }
    WEFT_ASSIGN(const auto listener, cluster::WorkerListener::Open(flags.listen));
    Log(LogLevel::kInfo, "listening on {} (port {}); Ctrl-C ends", flags.listen.listen,
        listener->port());
    return listener->Run();
}

int Join(const std::string& handle) {
    auto cluster = cluster::Cluster::Join(handle);
    if (!cluster.ok()) return ExitStatus(cluster.error().code);
    SetLogRank((*cluster)->rank());
    const Status status = WorkOn(**cluster);
    if (status.ok()) return 0;
    if ((*cluster)->should_report()) Fail(status.error());
    return train::WorkStatus(**cluster, status.error());
}

}  // namespace

void AddWorker(const Command& app, int& status) {
    auto flags = std::make_shared<WorkerFlags>();
    const Command worker = app.AddCommand("worker", "Serve ranks of jobs that other hosts start");
    worker.AddOption("--listen", flags->listen.listen, "HOST:PORT to listen on");
    worker.AddOption("--key-file", flags->listen.key_file, "The key shared with rank 0");
    worker.AddOption("--join", flags->join, "").Group("");
    worker.Footer(
        "Each job runs in a process of its own; Ctrl-C ends the worker.\n\n"
        "Examples:\n"
        "  head -c 32 /dev/urandom | base64 > weft.key && chmod 600 weft.key\n"
        "  weft worker --listen 0.0.0.0:7000 --key-file weft.key\n"
        "  weft run model.gguf -p \"Hello\" --hosts b:7000 --key-file weft.key   (on the first "
        "host)");
    worker.Callback([flags, &status] {
        if (!flags->join.empty()) {
            status = Join(flags->join);
        } else if (Status s = Listen(*flags); !s.ok()) {
            status = Fail(s.error());
        }
    });
}

}  // namespace weft::cli
