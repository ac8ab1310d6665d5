// Flags that several subcommands share, the same everywhere: where ranks run, how the model is cut,
// how it is computed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/engine.h"

namespace weft::cli {

// --local, --hosts, --hostfile, --transport, --timeout-ms, --key-file, --tp, --pp, --split, -t,
// --ctx, --chunk, --kv, --reference, --trace, --verify; and --json.
struct CommonFlags {
    cluster::ClusterOptions cluster;
    engine::Job job;
    std::string hosts, hostfile, split, kv = "f16", trace_file;
    bool json = false;
};

// Adds MODEL and the shared flags to a subcommand.
void AddModel(CLI::App& app, CommonFlags& flags);
void AddClusterFlags(CLI::App& app, CommonFlags& flags);
void AddEngineFlags(CLI::App& app, CommonFlags& flags);

// Turns the words into options, once they are parsed. kUsage where they contradict each other.
Status Resolve(CommonFlags& flags);

// Prints `error` on standard error (as JSON on standard output too where asked) and returns the
// exit status.
int Fail(const Error& error, bool json = false);

}  // namespace weft::cli
