// Flags of `weft serve`, for a server of one model (serve.cc) and of several (serve_pool.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line/flags.h"
#include "cli/command_line/sampling_flags.h"
#include "cli/serve/supervise.h"
#include "serve/server.h"

namespace weft::cli {

// One MODEL word: MODEL or NAME=MODEL. name: "" without one.
struct ModelWord {
    std::string name, model;
};

// Values that a server of several models passes to the process of one model.
struct PoolMember {
    std::string name, model;
    int64_t ctx = 0, kv_tokens = 0;
    int rates = -1;  // RateTable::fd of the front process

    // From the environment, once; nullopt: this process is not a member.
    static std::optional<PoolMember> Take();
    std::string Variable() const;  // NAME=VALUE for the environment
};

struct ServeFlags {
    CommonFlags common;
    serve::ServerOptions server;
    SamplingFlags sampling;
    bool no_prefix_cache = false;
    std::string pooling = "auto";
    std::string log_format = "text";
    bool no_access_log = false;
    std::string config;
    std::vector<std::string> lora;  // NAME=FOLDER
    std::string template_kwargs;    // JSON
    std::string max_responses_age = "30d";
    bool restart = false, unit = false;
    std::vector<std::string> words;  // MODEL or NAME=MODEL, as given
    std::vector<ModelWord> models;   // `words`, parsed
    int64_t max_loaded = 0;          // 0: as memory allows
    std::string keep_alive;          // "": forever
    int64_t load_timeout_ms = 600'000;
    int64_t load_share = 50;  // percent
    std::optional<PoolMember> member;
    Command command;

    void Begin();  // SetCallback calls it before anything can fail
    bool pool() const { return models.size() > 1 || max_loaded > 0 || !keep_alive.empty(); }
};

// Prints a line for the user on standard error, or logs it with --log-format json.
void Tell(const std::string& line);
// "./qwen3-8b" for a file or folder here, of a later process: if the file is absent then, the name
// could mean a model of the Hub.
std::string WithFolder(const std::string& model);
// Fills in flags.server and resolves flags.common, except for the model.
Status PrepareServer(ServeFlags& flags);

// MODEL, --max-loaded, --keep-alive and --load-timeout-ms. Sets common.job.model to the first
// model, or to the model of `member`.
void AddServedModels(const Command& app, ServeFlags& flags);
// Runs a server of several models.
Status ServePool(ServeFlags& flags);
// Changes the flags to a member's flags: its model, this machine only, no keep-alive.
void BecomeMember(const PoolMember& member, int port, ServeFlags& flags);

}  // namespace weft::cli
