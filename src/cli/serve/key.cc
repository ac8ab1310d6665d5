// weft key: API keys of `weft serve`.
#include <algorithm>

#include "cli/commands.h"
#include "serve/keys.h"

namespace weft::cli {
namespace {

constexpr const char* kKeyFooter =
    "A key file has one line per key: NAME SHA256 [rate=N] [tokens=N] [concurrent=N]\n"
    "[priority=N] [weight=W] [group=NAME], and comments after '#'. It holds hashes only, no keys.\n"
    "A server reloads the file when it changes.\n\n"
    "Examples:\n"
    "  weft key new alice >> keys                       # the key on standard error, once\n"
    "  weft key new bot --rate 60 --concurrent 2 >> keys\n"
    "  weft key check keys\n"
    "  curl -H \"Authorization: Bearer weft-...\" http://127.0.0.1:8080/v1/models";

struct KeyFlags {
    std::string name, file;
    serve::KeyLimits limits;
    bool json = false;
};

Status New(KeyFlags& flags) {
    WEFT_TRY(serve::CheckKey(flags.name, flags.limits));
    const std::string key = serve::NewApiKey();
    const std::string line = serve::KeyLine(flags.name, key, flags.limits);
    if (flags.json) {
        PrintJson({{"name", flags.name}, {"key", key}, {"line", line}});
        return {};
    }
    PrintErr("The key of {}; Weft shows it only now:\n{}\n", flags.name, key);
    PrintOut("{}\n", line);
    return {};
}

std::string LimitText(int64_t limit) {
    return limit == 0 ? "-" : std::to_string(limit);
}

Status Check(KeyFlags& flags) {
    WEFT_ASSIGN(const auto store, serve::KeyStore::Open(flags.file));
    const auto ring = store->ring();
    Json json = Json::array();
    size_t width = 4;
    for (const serve::ApiKey& key : ring->keys()) {
        width = std::max(width, key.name.size());
        json.push_back({{"name", key.name},
                        {"requests_per_minute", key.limits.requests_per_minute},
                        {"tokens_per_minute", key.limits.tokens_per_minute},
                        {"concurrent", key.limits.concurrent},
                        {"priority", key.limits.priority},
                        {"weight", key.limits.weight},
                        {"group", key.limits.group}});
    }
    if (flags.json) {
        PrintJson(json);
        return {};
    }
    PrintOut("{:<{}} {:>12} {:>12} {:>10} {:>8} {:>6} {}\n", "name", width, "requests/min",
             "tokens/min", "concurrent", "priority", "weight", "group");
    for (const serve::ApiKey& key : ring->keys()) {
        const serve::KeyLimits& limits = key.limits;
        PrintOut("{:<{}} {:>12} {:>12} {:>10} {:>8} {:>6} {}\n", key.name, width,
                 LimitText(limits.requests_per_minute), LimitText(limits.tokens_per_minute),
                 LimitText(limits.concurrent), limits.priority, limits.weight,
                 limits.group.empty() ? "-" : limits.group);
    }
    return {};
}

void AddNew(const Command& keys, int& status) {
    auto flags = std::make_shared<KeyFlags>();
    const Command command = keys.AddCommand(
        "new",
        "Create an API key: print the line for the key file, and the key itself on standard error",
        kKeyFooter);
    serve::KeyLimits& limits = flags->limits;
    command.AddOption("NAME", flags->name, "Name of the key's owner: letters, digits and '._-'")
        .Required();
    command.AddOption("--rate", limits.requests_per_minute,
                      "Maximum requests per minute (no limit)");
    command.AddOption("--tokens", limits.tokens_per_minute, "Maximum tokens per minute (no limit)");
    command.AddOption("--concurrent", limits.concurrent,
                      "Maximum concurrent requests and running sequences; the other sequences of a "
                      "request wait (no limit)");
    command.AddOption("--priority", limits.priority,
                      "Priority, -100 to 100; higher values run first (0)");
    command.AddOption("--weight", limits.weight, "Weight of the key's share beside other keys (1)");
    command.AddOption("--group", limits.group,
                      "Group of keys that share the prefix cache; its members can learn from "
                      "cached_tokens what the others asked (none)");
    SetJsonCallback(command, flags, status, New);
}

void AddCheck(const Command& keys, int& status) {
    auto flags = std::make_shared<KeyFlags>();
    const Command command =
        keys.AddCommand("check", "Check a key file and describe its keys", kKeyFooter);
    command.AddOption("FILE", flags->file, "Path of the key file").Required();
    SetJsonCallback(command, flags, status, Check);
}

}  // namespace

void AddKey(const Command& app, int& status) {
    const Command keys = app.AddCommand("key", "Manage the API keys of a server", kKeyFooter);
    keys.NeedsCommand();
    AddNew(keys, status);
    AddCheck(keys, status);
}

}  // namespace weft::cli
