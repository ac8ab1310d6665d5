// weft serve with several models: one process per loaded model (serve/pool).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/fd.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command_line/duration.h"
#include "cli/serve/serve_flags.h"
#include "cli/terminal/output.h"
#include "engine/batch/step_drafts.h"
#include "engine/rank/cache_size.h"
#include "model_files/model_file.h"
#include "plan/this_host.h"
#include "serve/pool/pool.h"

namespace weft::cli {
namespace {

constexpr const char* kMember = "WEFT_POOL_MEMBER";

// "small=A.gguf" names a model, unless a file or a synthetic model has this name.
ModelWord ParseModelWord(const std::string& word) {
    const size_t equals = word.find('=');
    std::error_code ignored;
    const bool whole = equals == word.npos || equals == 0 || word.starts_with("synthetic:") ||
                       word.find('/') < equals || std::filesystem::exists(word, ignored);
    if (whole) return {"", word};
    return {word.substr(0, equals), word.substr(equals + 1)};
}

Status RefuseFlag(bool given, const char* flag, const char* instead) {
    if (!given) return {};
    return MakeError(ErrorCode::kUsage, "{} works with one MODEL only. {}", flag, instead);
}

Status CheckPoolFlags(const ServeFlags& flags) {
    const serve::ServerOptions& server = flags.server;
    WEFT_TRY(RefuseFlag(!server.name.empty(), "--name", "Write NAME=MODEL"));
    WEFT_TRY(RefuseFlag(!server.aliases.empty(), "--alias", "Write NAME=MODEL"));
    WEFT_TRY(RefuseFlag(!flags.lora.empty(), "--lora", "Serve the adapters by another server"));
    WEFT_TRY(RefuseFlag(!server.batch.draft.model.empty(), "--draft",
                        "Use --prompt-lookup, which needs no draft model"));
    WEFT_TRY(RefuseFlag(!flags.common.trace_file.empty(), "--trace", "Trace each model alone"));
    WEFT_TRY(RefuseFlag(flags.common.cluster.launched != nullptr, "A launcher",
                        "Start the ranks with --local or --hosts"));
    return RefuseFlag(flags.restart || flags.unit, flags.unit ? "--unit" : "--restart",
                      "A server of several models loads a model again after a crash");
}

// Names are part of JSON and of log lines.
Status CheckName(const std::string& name, const std::string& word) {
    const bool control = std::ranges::any_of(
        name, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
    if (IsUtf8(name) && !control) return {};
    return MakeError(ErrorCode::kUsage,
                     "the name of the model {} is not printable UTF-8. Name it: NAME=MODEL", word);
}

// Number of models that may be loaded at the same time.
size_t MostLoaded(const ServeFlags& flags) {
    const size_t all = flags.models.size();
    return flags.max_loaded == 0 ? all : std::min(all, static_cast<size_t>(flags.max_loaded));
}

// The models, and what each needs of this machine's memories.
Status ReadModels(ServeFlags& flags, const plan::LocalDevices& devices, serve::PoolOptions& pool) {
    for (ModelWord& word : flags.models) {
        serve::ServerOptions options = flags.server;
        options.name = word.name.empty() ? serve::NameOfModel(word.model) : word.name;
        WEFT_TRY(CheckName(options.name, word.model));
        WEFT_TRY(FindModel(word.model, flags.common.pull));
        options.job = flags.common.job;
        options.job.model = word.model;
        engine::Job& job = options.job;
        WEFT_ASSIGN(const bool chosen, engine::SizeCache(job, options.batch, MostLoaded(flags)));
        const int64_t seqs = options.batch.max_seqs;
        job.max_outputs = seqs + engine::StepDrafts(options.batch.draft).most_rows(seqs);
        job.state_slots = engine::StateSlots(options.batch);
        WEFT_ASSIGN(plan::MemoryBytes needs, plan::NeedsHere(job, cluster::RanksOf(options.cluster),
                                                             devices, pool.limits.memory));
        pool.needs.push_back(std::move(needs));
        if (chosen && !flags.common.json) {
            WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
            WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
            Tell(fmt::format("{}: context {} ({})", options.name, job.ctx,
                             engine::WhyContext(job, hyper)));
        }
        pool.models.push_back(std::move(options));
    }
    return {};
}

void LogReady(const serve::PoolServer& server, const serve::PoolOptions& options, bool json) {
    Json models = Json::array();
    std::string names;
    for (const serve::ServerOptions& model : options.models) {
        models.push_back(model.name);
        names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
    }
    if (json) return PostJson({{"url", server.url()}, {"port", server.port()}, {"models", models}});
    Tell(fmt::format("serving {} on {}. A model loads at its first request. Ctrl-C stops.", names,
                     server.url()));
}

}  // namespace

std::optional<PoolMember> PoolMember::Take() {
    const char* text = std::getenv(kMember);
    if (text == nullptr) return {};
    std::istringstream in(text);
    ::unsetenv(kMember);
    PoolMember member;
    in >> member.ctx >> member.kv_tokens >> member.rates;
    in.get();
    std::getline(in, member.name);
    std::getline(in, member.model, '\0');
    if (!in.eof() || member.model.empty()) return {};
    return member;
}

std::string PoolMember::Variable() const {
    // The path is the last part, because it may contain any bytes. A name has no line break
    // (CheckName).
    return fmt::format("{}={} {} {} {}\n{}", kMember, ctx, kv_tokens, rates, name, model);
}

void BecomeMember(const PoolMember& member, int port, ServeFlags& flags) {
    serve::ServerOptions& server = flags.server;
    server.name = member.name;
    server.drain_delay_ms = server.drain_ms = 0;  // the front has waited
    server.http.host = "127.0.0.1";
    server.http.port = port;
    server.http.tls_cert.clear();
    server.http.tls_key.clear();
    server.http.allow_origins.clear();
    server.http.allowed_hosts.clear();
    server.http.behind_front = true;
    server.http.limits.head_bytes += 4096;  // for the headers that the front adds
    server.http.limits.headers += 16;
    auto rates = serve::RateTable::Attach(Fd(member.rates));
    if (!rates.ok()) Log(LogLevel::kError, "{}", rates.error().message);
    if (rates.ok()) server.api.rates = *std::move(rates);
    flags.common.job.kv_tokens = member.kv_tokens;
    flags.common.ctx = member.ctx;
}

void AddServedModels(const Command& app, ServeFlags& flags) {
    const Command serving = app.Group("Serving");
    app.AddOption("MODEL", flags.words,
                  ModelHelp() + "; several are loaded on demand; NAME=MODEL names one in the API")
        .Required();
    app.AddFlag("--pull", flags.common.pull,
                "Download models from the Hub first if the cache lacks them");
    const auto layers = std::make_shared<int>(0);
    app.AddNumber("--layers N", *layers, 1, 4096,
                  "Use only the first N layers of a synthetic model");
    serving.AddNumber("--max-loaded", flags.max_loaded, 1, 4096,
                      "Maximum loaded models (default: as many as fit into memory); for another "
                      "one, Weft unloads the idle model that was used least recently");
    serving.AddOption("--keep-alive TIME", flags.keep_alive,
                      "Unload a model that was idle for this time: 5m, 1h (default: only for "
                      "another model); Ollama's keep_alive of a request overrides it");
    serving.AddNumber(
        "--load-share", flags.load_share, 1, 100,
        "Percent of the time for which one API key may make Weft load models, if there are several "
        "keys (50; 100: no limit); beyond it, its requests of unloaded models get status 429");
    serving.AddNumber("--load-timeout-ms", flags.load_timeout_ms, 1, int64_t{86'400'000},
                      "Milliseconds that a load may take, and that a request waits until its model "
                      "is loaded (600000), if there are several models");
    app.Check("--layers", [layers, &flags]() -> std::string {
        flags.member = PoolMember::Take();
        for (const std::string& word : flags.words) {
            ModelWord model = ParseModelWord(word);
            const bool cuts = model.model.starts_with("synthetic:");
            if (*layers > 0 && !cuts) return "only a synthetic model can be cut";
            if (*layers > 0) model.model += fmt::format(":layers={}", *layers);
            flags.models.push_back(std::move(model));
        }
        if (flags.models.empty()) return "";
        flags.common.job.model = flags.member ? flags.member->model : flags.models[0].model;
        if (!flags.pool() && flags.server.name.empty()) flags.server.name = flags.models[0].name;
        return "";
    });
}

Status ServePool(ServeFlags& flags) {
    WEFT_TRY(CheckPoolFlags(flags));
    serve::PoolOptions options;
    if (flags.keep_alive == "0") {
        options.limits.keep_ms = 0;
    } else if (!flags.keep_alive.empty()) {
        WEFT_ASSIGN(const double keep_s, ParseTime("--keep-alive", flags.keep_alive));
        options.limits.keep_ms = static_cast<int64_t>(keep_s * 1000);
    }
    WEFT_TRY(PrepareServer(flags));
    options.load_ms = options.limits.wait_ms = flags.load_timeout_ms;
    options.silence_ms = flags.common.cluster.timeout_ms;
    options.limits.max_loaded = MostLoaded(flags);
    const cluster::ClusterOptions& cluster = flags.server.cluster;
    const int ranks = cluster::RanksOf(cluster);
    const bool one_host = cluster.hosts.empty() && cluster.wait_for == 0;
    WEFT_ASSIGN(
        const plan::LocalDevices devices,
        plan::DevicesHere(flags.common.job, ranks, one_host ? static_cast<size_t>(ranks) : 1));
    options.limits.memory = plan::FreeBytes(devices);
    WEFT_TRY(ReadModels(flags, devices, options));
    options.front = flags.server;
    options.load_share = flags.load_share * 0.01;
    WEFT_ASSIGN(options.front.api.rates, serve::RateTable::Share());
    // (Unknown: the load itself then reports the error.)
    options.free_bytes = [&devices] { return plan::FreeBytes(devices); };
    WEFT_ASSIGN(const std::vector<std::string> words, OwnCommandLine());
    options.start = [words, &options](size_t model) -> Result<serve::PoolProcess> {
        const serve::ServerOptions& its = options.models[model];
        const int rates = options.front.api.rates->fd();
        const PoolMember member{its.name, WithFolder(its.job.model), its.job.ctx, its.job.kv_tokens,
                                rates};
        WEFT_ASSIGN(ServerProcess process,
                    StartServer(words, 0, {}, {member.Variable()}, nullptr, SIGKILL, rates));
        return serve::PoolProcess{process.pid, std::move(process.socket)};
    };
    const bool json = flags.common.json;
    serve::PoolServer* running = nullptr;
    options.ready = [&](double) { LogReady(*running, options, json); };
    WEFT_ASSIGN(const auto server, serve::PoolServer::Start(options));
    running = server.get();
    return server->Run();
}

}  // namespace weft::cli
