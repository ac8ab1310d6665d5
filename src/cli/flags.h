// Flags that several subcommands share, the same everywhere: where ranks run, how the model is cut,
// how it is computed. And how commands end in an error.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/engine.h"

namespace weft::cli {

// --local, --hosts, --hostfile, --transport, --rdma-device, --gid-index, --timeout-ms, --key-file,
// --tp, --pp, --split, -t, --ctx, --chunk, --kv, --reference, --trace, --verify; and --json.
struct CommonFlags {
    cluster::ClusterOptions cluster;
    engine::Job job;
    std::string hosts, hostfile, split, kv = "f16", trace_file;
    bool json = false;
};

// Adds MODEL and the shared flags to a subcommand.
void AddModel(CLI::App& app, std::string& model);
void AddClusterFlags(CLI::App& app, CommonFlags& flags);
void AddLayoutFlags(CLI::App& app, CommonFlags& flags);  // --tp, --pp, --transport
void AddEngineFlags(CLI::App& app, CommonFlags& flags);
void AddJson(CLI::App& app, bool& json);

// Turns the words into options, once they are parsed. kUsage where they contradict each other.
Status Resolve(CommonFlags& flags);
// The part of it that is about --hosts and --hostfile.
Status ResolveHosts(CommonFlags& flags);

// Prints `error` on standard error (as JSON on standard output too where asked) and returns the
// exit status.
int Fail(const Error& error, bool json = false);

// What most commands do with flags: run(*flags) is the callback of `command`; its error is printed.
template <typename Flags, typename Function>
void SetCallback(CLI::App* command, std::shared_ptr<Flags> flags, const bool& json, int& status,
                 Function run) {
    command->callback([flags, &json, &status, run] {
        if (Status s = run(*flags); !s.ok()) status = Fail(s.error(), json);
    });
}

}  // namespace weft::cli
