// weft serve: an OpenAI-compatible server.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/log.h"
#include "base/log_format.h"
#include "cli/bench/summary.h"
#include "cli/chat/chat_model.h"
#include "cli/command_line/duration.h"
#include "cli/command_line/habit_words.h"
#include "cli/command_line/habits.h"
#include "cli/commands.h"
#include "cli/serve/serve_flags.h"
#include "cli/serve/systemd_unit.h"
#include "cli/terminal/loading_line.h"
#include "engine/rank/cache_size.h"
#include "engine/rank/sum_wire.h"
#include "serve/server.h"

namespace weft::cli {
namespace {

constexpr const char* kServeFooter =
    "Then, in another terminal:\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Name three colours.\"}]}'\n"
    "or with OpenAI's package: OpenAI(base_url=\"http://127.0.0.1:8080/v1\", api_key=\"none\")\n\n"
    "Examples:\n"
    "  weft serve model.gguf -t 2 --ctx 8192\n"
    "  weft serve model.gguf --local 2 --tp 2 -t 1\n"
    "  weft serve model.gguf --prompt-lookup\n"
    "  weft serve small=a.gguf big=b.gguf --max-loaded 1\n"
    "  weft serve big.gguf --draft small.gguf\n"
    "  weft serve hf:OWNER/NAME:Q4_K_M --pull --hosts b:7000,c:7000 --key-file weft.key\n"
    "  weft serve model.gguf --cluster home --restart\n"
    "  weft serve model.gguf --host 0.0.0.0 --api-key-file keys --tls-cert c.pem --tls-key k.pem";

constexpr const char* kServe = "weft serve";  // as a user types the command
constexpr int64_t kDefaultRejoinMs = 60'000;

// Sets JSON logs in this process and in the ranks that it starts.
void UseJsonLog() {
    SetLogJson(true);
    ::setenv("WEFT_LOG_FORMAT", "json", 1);
}

// A stop that the user requested while the server loads is not an error.
Status UnlessStopped(const serve::ServerOptions& options, Error error) {
    const bool asked = options.interrupted != nullptr && options.interrupted->load();
    if (!asked || error.code != ErrorCode::kCancelled) return error;
    Tell(error.message);
    return {};
}

// chosen: whether Weft chose the context.
void LogServing(serve::Server& server, const serve::ServerOptions& options, bool chosen, bool json,
                double load_s) {
    engine::Rank& rank = server.engine().rank();
    const engine::Job& job = rank.job();
    // An elastic job may have started with fewer ranks than requested.
    const int ranks = rank.layout().size();
    const bool sums = rank.layout().tp > 1;
    const std::string wire = sums ? engine::SumWireName(rank.wire()) : "";
    const std::string prompt_wire = sums ? engine::SumWireName(rank.prompt_wire()) : "";
    if (!json) {
        Tell(fmt::format("default sampling: {}", server.sampling()));
        const std::string narrow = wire.empty() || wire == "f64" ? "" : ", sums as " + wire;
        const std::string of_prompts =
            prompt_wire == wire ? ""
                                : fmt::format(", sums of prompts of {} tokens or more as {}",
                                              engine::kLeastNarrowPrompt, prompt_wire);
        const backend::DeviceInfo& device = rank.device()->info();
        return Tell(fmt::format(
            "serving {} on {} ({} rank{}{}{}{}, context {}{}, KV cache of {} tokens, loaded "
            "in {:.1f} s). Ctrl-C stops.",
            options.job.model, server.url(), ranks, ranks == 1 ? "" : "s",
            device.name == "cpu" ? "" : fmt::format(" on {} {}", device.name, device.hardware),
            narrow, of_prompts, job.ctx,
            chosen ? fmt::format(" ({})", engine::WhyContext(job, rank.hyper())) : "",
            job.cache_tokens(), load_s));
    }
    Json said{{"url", server.url()},
              {"port", server.port()},
              {"ranks", ranks},
              {"device", rank.device()->info().name},
              {"ctx", job.ctx},
              {"kv_tokens", job.cache_tokens()},
              {"max_seqs", options.batch.max_seqs},
              {"lookup", options.batch.draft.lookup},
              {"draft", options.batch.draft.model},
              {"load_s", load_s}};
    if (sums) said["wire"] = wire;
    if (sums) said["prompt_wire"] = prompt_wire;
    said["sampling"] = server.sampling();
    PostJson(said);
}

// Whether SIGHUP means to reload files. (A service manager sends it for no other reason.)
bool Reloads(const serve::ServerOptions& options) {
    return !options.key_file.empty() || !options.http.tls_cert.empty() ||
           std::getenv("INVOCATION_ID") != nullptr;
}

// Undoes WithFolder once the file is found: all ranks receive the word, and on another host it may
// be the name of a model in the Hub's cache.
void WithoutFolder(std::string& model) {
    if (model.starts_with("./") && WithFolder(model.substr(2)) == model) model.erase(0, 2);
}

Status ServeOnce(ServeFlags& flags, const Supervisor& supervisor) {
    if (supervisor.present()) {
        flags.server.aliases.push_back(flags.common.job.model);
        WithoutFolder(flags.common.job.model);
        WithoutFolder(flags.server.batch.draft.model);
    }
    WEFT_TRY(PrepareServer(flags));
    WEFT_TRY(FindDraft(flags.server.batch.draft.model, flags.common.pull));
    serve::ServerOptions& options = flags.server;
    WEFT_ASSIGN(const bool chosen, engine::SizeCache(flags.common.job, options.batch));
    options.job = flags.common.job;
    options.job.warm_up = true;
    const bool member = flags.member.has_value();
    if (member) options.say = nullptr;  // the parent prints it
    std::unique_ptr<serve::Server> server;
    const int64_t begin_ns = NowNs();
    {
        supervisor.PromptForPort();
        const LoadingLine line(fmt::format("loading {}", options.job.model), options.cluster);
        auto started = serve::Server::Start(options);
        if (!started.ok()) return UnlessStopped(options, started.error());
        server = std::move(started).value();
    }
    if (!member) {
        LogServing(*server, options, chosen, flags.common.json, SecondsSince(begin_ns));
    }
    supervisor.LogServing(server->port(), options.cluster.host_names);
    WEFT_TRY(server->Run());
    return options.job.trace ? WriteTrace(flags.common.trace_file, server->reports()) : Status();
}

// The hosts named in an error: hosts of a lost rank or an unresponsive worker.
std::vector<std::string> HostsOf(const Error& error, const CommonFlags& flags) {
    if (!flags.missing_hosts.empty()) return flags.missing_hosts;
    std::vector<std::string> named;
    for (size_t i = 0; i < flags.cluster.hosts.size(); ++i) {
        const std::string& address = flags.cluster.hosts[i];
        const bool has_name = i < flags.cluster.host_names.size();
        const std::string& name = has_name ? flags.cluster.host_names[i] : address;
        const std::string& text = error.message;
        const bool lost = text.find(fmt::format("(host {},", name)) != text.npos ||
                          text.find(fmt::format("(host {})", name)) != text.npos;
        if (lost || text.find(address + ": ") != text.npos) named.push_back(name);
    }
    return named;
}

// This process's command line, for a later process: its models stay the same if a file is absent
// then.
Result<std::vector<std::string>> LaterLine(const ServeFlags& flags) {
    constexpr size_t kFirst = 2;  // after the program and its command
    WEFT_ASSIGN(std::vector<std::string> words, OwnCommandLine());
    const std::string& draft = flags.server.batch.draft.model;
    const bool has_draft = !draft.empty() && draft != engine::DraftOptions::kDraftHead;
    const auto& [api_name, first_model] = flags.models.front();
    std::vector<std::string> models = {first_model};
    if (has_draft) models.push_back(draft);
    const DescribedCommand serve = flags.common.command.Describe();
    std::vector<std::string> rest(words.begin() + std::min(kFirst, words.size()), words.end());
    const std::vector<WordKind> kinds = KindsOf(serve, rest);
    std::set<std::string> typed;
    for (size_t i = 0; i < rest.size(); ++i) {
        std::string& word = words[kFirst + i];
        // (A word behind a flag of another program is positional for KindsOf.)
        const bool is_flag = kinds[i] == WordKind::kFlag;
        const bool behind =
            i > 0 && kinds[i - 1] == WordKind::kFlag && rest[i - 1].find('=') == word.npos;
        const std::string flag = is_flag  ? MeantFlag(serve, kServe, word)
                                 : behind ? MeantFlag(serve, kServe, rest[i - 1])
                                          : "";
        const DescribedFlag* known = serve.FindFlag(flag);
        const bool takes = known != nullptr && known->kind != ValueKind::kNone;
        const bool positional = kinds[i] == WordKind::kPositional || kinds[i] == WordKind::kRest;
        const bool names_models = flag == kModelWord || flag == "--draft" || (positional && !takes);
        if (!names_models) continue;
        for (const std::string& model : models) {
            if (word != model && !word.ends_with("=" + model)) continue;
            word = word.substr(0, word.size() - model.size()) + WithFolder(model);
            typed.insert(model);
            break;
        }
    }
    // The line overrides the file of --config.
    for (const std::string& model : models) {
        if (!HasFlag(serve, rest, "--config")) break;
        if (typed.contains(model) || WithFolder(model) == model) continue;
        const std::string name = api_name.empty() ? "" : api_name + "=";
        const std::string before = model == first_model ? name : "--draft=";
        words.insert(words.begin() + kFirst, before + WithFolder(model));
    }
    return words;
}

Status PrintServeUnit(const ServeFlags& flags) {
    if (!flags.restart) {
        return MakeError(ErrorCode::kUsage,
                         "--unit needs --restart: without --restart, the service ends when a host "
                         "is unreachable");
    }
    WEFT_ASSIGN(const std::vector<std::string> words, LaterLine(flags));
    return PrintUserUnit(
        {.name = "weft-serve",
         .description = "Weft: serve " + flags.common.job.model,
         .words = words,
         .stop_seconds = (flags.server.drain_delay_ms + flags.server.drain_ms) / 1000 + 30,
         .reloads = true});
}

Status Serve(ServeFlags& flags) {
    if (flags.unit && !flags.pool()) return PrintServeUnit(flags);
    const Supervisor supervisor = Supervisor::Take();
    const bool member = flags.member.has_value() && supervisor.present();
    if (flags.pool() && !member) return ServePool(flags);
    if (flags.restart && !supervisor.present()) {
        if (flags.common.cluster.launched != nullptr) {
            return MakeError(ErrorCode::kUsage,
                             "--restart does not work under a launcher, which restarts the ranks "
                             "itself");
        }
        serve::HttpOptions http = flags.server.http;
        if (flags.server.key_file.empty()) serve::NeedNoKeys(http);
        WEFT_ASSIGN(std::vector<std::string> words, LaterLine(flags));
        WEFT_ASSIGN(const int status,
                    Supervise(std::move(words), http, HangupRule::Find(Reloads(flags.server))));
        std::exit(status);  // the server itself has reported the reason
    }
    if (member) {
        BecomeMember(*flags.member, supervisor.port(), flags);
    } else if (supervisor.present()) {
        flags.server.http.port = supervisor.port();
        flags.common.needed_hosts = supervisor.hosts();
    }
    const Status ended = ServeOnce(flags, supervisor);
    if (ended.ok() || !supervisor.present()) return ended;
    const Error error = fabric::WithPathFaults(ended.error(), flags.common.cluster);
    if (supervisor.ReportFailure(error, HostsOf(error, flags.common))) {
        std::exit(ExitStatus(error.code));
    }
    return ended;
}

void AddServing(const Command& app, ServeFlags& flags) {
    const Command group = app.Group("Serving");
    serve::ServerOptions& server = flags.server;
    group.AddOption(
        "--host", server.http.host,
        "Address to listen on (127.0.0.1: this machine only; any other address needs keys)");
    group.AddNumber("--port", server.http.port, 0, 65535,
                    "Port to listen on (8080; 0: any free port)");
    group.AddNumber("--max-seqs", server.batch.max_seqs, 1, 4096, "Maximum running sequences (32)");
    group.AddNumber("--step-tokens", flags.common.job.chunk, 1, 65536,
                    "Maximum rows per step (512): the part of a long prompt that Weft computes "
                    "between two tokens of other sequences; same as --prefill-chunk");
    group.AddNumber(
        "--kv-tokens", flags.common.job.kv_tokens, 1, int64_t{1} << 31,
        "Total tokens in the KV cache (default: --ctx times --max-seqs, or what fits into memory)");
    group.AddFlag("--no-prefix-cache", flags.no_prefix_cache,
                  "Disable the prefix cache: compute every prompt in full");
    group.AddFlag("--shared-prefix-cache", server.api.shared_prefix_cache,
                  "Share one prefix cache among all API keys; a key's owner can then learn from "
                  "cached_tokens and timing what others asked (default: one cache per key)");
    group.AddNumber(
        "--max-waiting", server.api.max_waiting, 1, 1 << 20,
        "Maximum waiting requests (1024), half of them from one API key; more get status 429");
    group.AddNumber(
        "--max-responses", server.api.max_responses, 0, 1 << 20,
        "Maximum responses (/v1/responses) stored; new ones replace the oldest (1000; 0: none)");
    group.AddSize("--max-responses-size SIZE", server.api.max_responses_bytes, 1,
                  "Maximum size of stored responses (64MB)");
    group.AddOption(
        "--responses-dir DIR", server.responses_folder,
        "Store responses in this folder, which several servers may share (default: in memory)");
    group.AddOption("--max-responses-age TIME", flags.max_responses_age,
                    "Time after which a response in --responses-dir expires: 12h, 7d (30d)");
    group.AddNumber("--max-restarts", server.batch.max_restarts, 0, 1 << 30,
                    "Maximum lost ranks within --restart-window-ms from which the server recovers; "
                    "one more ends it (10)");
    group.AddNumber("--restart-window-ms", server.batch.restart_window_ms, 0, int64_t{1} << 50,
                    "Milliseconds for which a lost rank counts against --max-restarts (3600000: "
                    "one hour; 0: forever)");
    group.AddNumber("--drain-ms", server.drain_ms, 0, 3'600'000,
                    "Milliseconds that running requests have after Ctrl-C, SIGTERM or SIGHUP, and "
                    "after --drain-delay-ms (30000)");
    group.AddNumber("--drain-delay-ms", server.drain_delay_ms, 0, 3'600'000,
                    "Milliseconds for which the server accepts requests after Ctrl-C, SIGTERM or "
                    "SIGHUP, while /ready already answers 503 (0); behind a load balancer: the "
                    "time that the balancer needs to notice");
    group.AddOption("--name", server.name, "Name of the model in the API (default: from its file)");
    group.AddEach("--alias", server.aliases,
                  "Additional name of the model in the API; may be repeated");
    group.AddEach(
        "--lora", flags.lora,
        "NAME=FOLDER: serve a LoRA adapter to requests with \"model\": \"NAME\"; may be repeated");
    group.AddFlag("--embeddings", server.embeddings,
                  "Serve embeddings only; with pipeline stages a server serves either text or "
                  "embeddings (default: on for embedding models)");
    group.AddChoice(
        "--pooling", flags.pooling,
        {"auto", "last", "mean", "cls", "max", "mean_sqrt_len", "weightedmean", "rank"},
        "Pooling of embeddings: the hidden state of the last token, of the first (cls), the mean "
        "or the maximum of all, their sum over the root of their number, or their mean weighted by "
        "position (default: from the model's files, else last). rank: Score pairs of texts by the "
        "model's own head, or by its answer, yes or no");
}

void AddChat(const Command& app, ServeFlags& flags) {
    const Command group = app.Group("Serving");
    group.AddNumber("--reasoning-budget", flags.server.reasoning_budget, -1, int64_t{1} << 31,
                    "Maximum tokens of reasoning in an answer; then Weft ends the reasoning and "
                    "the answer begins (-1: no limit; 0: no reasoning)");
    group.AddOption("--chat-template-kwargs JSON", flags.template_kwargs,
                    "Variables of the chat template for requests that do not set them, such as "
                    "'{\"enable_thinking\": false}'");
    group.AddFlag("--media-as-text", flags.server.media_as_text,
                  "Put a note in place of images, recordings and files in messages (default: "
                  "refuse such a request, except in results of tools)");
}

// Limits of the HTTP layer (docs/serve-http.md).
void AddLimits(const Command& app, serve::HttpLimits& limits) {
    const Command group = app.Group("Limits");
    constexpr int64_t kDayMs = 86'400'000;
    group.AddNumber("--max-connections", limits.max_connections, 1, 1 << 20,
                    "Maximum open connections with an API key (8192); beyond it Weft closes idle "
                    "ones, then answers 503");
    group.AddNumber("--max-strangers", limits.max_strangers, 1, 1 << 20,
                    "Maximum open connections from one address (IPv6: one /64) without an API key; "
                    "beyond it Weft closes the oldest (default: a quarter of --max-connections)");
    group.AddNumber("--max-headers", limits.headers, 1, 10'000,
                    "Maximum number of headers per request (100)");
    group.AddSize("--max-head-size SIZE", limits.head_bytes, 256,
                  "Maximum size of request line and headers (16KB)");
    group.AddSize("--max-body-size SIZE", limits.body_bytes, 1,
                  "Maximum size of a request body (32MB)");
    group.AddSize("--max-bodies-size SIZE", limits.all_bodies_bytes, 1,
                  "Maximum memory of all requests and unread answers (256MB); beyond it Weft "
                  "disconnects the slowest readers and answers 503");
    group.AddNumber("--head-timeout-ms", limits.head_ms, 1, kDayMs,
                    "Milliseconds from a request's first byte to the end of its headers (10000)");
    group.AddNumber("--body-timeout-ms", limits.body_ms, 1, kDayMs,
                    "Milliseconds from a request's first byte to the end of its body (120000)");
    group.AddNumber("--idle-timeout-ms", limits.idle_ms, 1, kDayMs,
                    "Milliseconds after which an idle connection closes (75000)");
    group.AddNumber(
        "--stall-timeout-ms", limits.stall_ms, 1, kDayMs,
        "Close a connection if its client reads nothing for this many milliseconds (30000)");
}

void AddLog(const Command& app, ServeFlags& flags) {
    const Command group = app.Group("Log");
    group.AddChoice("--log-format", flags.log_format, {"text", "json"},
                    "Format of log lines on standard error: text, or json (one object per line)");
    group.AddFlag("--no-access-log", flags.no_access_log,
                  "Do not log requests (Weft never logs probes and the web page)");
}

// Access control.
void AddAccess(const Command& app, serve::ServerOptions& server) {
    const Command group = app.Group("Access");
    group.AddOption("--api-key-file", server.key_file,
                    "File with the API keys of clients ('weft key new NAME' creates one)");
    group.AddChoice("--metrics-prefix", server.metrics_prefix, {"weft", "vllm", "vllm_"},
                    "Prefix of names in /metrics: weft (default: weft:NAME), vllm or vllm_ "
                    "(vllm:NAME, vllm_NAME, for vLLM's dashboards)");
    group.AddOption("--tls-cert", server.http.tls_cert, "TLS certificate with its chain");
    group.AddOption("--tls-key", server.http.tls_key, "Private key of the TLS certificate");
    group.AddEach("--allow-origin", server.http.allow_origins,
                  "CORS origin whose pages may call the API, or *; may be repeated");
    group.AddEach("--allow-host", server.http.allowed_hosts,
                  "Host name that requests may use without API keys, besides localhost, or *; may "
                  "be repeated");
}

}  // namespace

void Tell(const std::string& line) {
    if (LogIsJson()) return Log(LogLevel::kInfo, "{}", line);
    PrintErr("weft: {}\n", line);
}

std::string WithFolder(const std::string& model) {
    std::error_code ignored;
    const bool word = !model.empty() && model.find_first_of("/.~") != 0 &&
                      !model.starts_with("hf:") && !model.starts_with("synthetic:");
    return word && std::filesystem::exists(model, ignored) ? "./" + model : model;
}

void ServeFlags::Begin() {
    if (log_format == "json") UseJsonLog();
}

Status PrepareServer(ServeFlags& flags) {
    WEFT_TRY(flags.sampling.Check());
    WEFT_TRY(engine::CheckDraft(flags.server.batch.draft));
    WEFT_TRY(Resolve(flags.common));
    for (const std::string& word : flags.lora) {
        WEFT_ASSIGN(model_files::NamedAdapter adapter, model_files::ParseAdapter(word));
        flags.common.job.adapters.push_back(std::move(adapter));
    }
    serve::ServerOptions& options = flags.server;
    options.interrupted = flags.common.cluster.stop;
    WEFT_ASSIGN(options.max_responses_age_s,
                ParseTime("--max-responses-age", flags.max_responses_age));
    WEFT_ASSIGN(options.template_variables, ParseVariables(flags.template_kwargs));
    if (Reloads(options)) options.reload = CatchReloads();
    options.cluster = flags.common.cluster;
    EndAtAnySecondStop();
    const int ranks = cluster::RanksOf(options.cluster);
    // (The launcher restarts its own ranks.)
    const bool may_rejoin = ranks > 1 && options.cluster.launched == nullptr;
    if (may_rejoin && options.cluster.rejoin_ms == 0 && options.batch.max_restarts > 0) {
        options.cluster.rejoin_ms = kDefaultRejoinMs;
    }
    options.batch.prefix_cache = !flags.no_prefix_cache;
    if (flags.no_prefix_cache && flags.common.job.keeps_pages()) {
        return MakeError(ErrorCode::kUsage,
                         "--cache-dir, --cache-ram and --slot-save-path extend the prefix cache: "
                         "leave out --no-prefix-cache");
    }
    options.pooling = model_files::PoolingOfName(flags.pooling);
    options.rerank = flags.pooling == "rank";
    if (options.key_file.empty()) serve::NeedNoKeys(options.http);
    options.sampling = flags.sampling.Given();
    options.model_sampling = flags.sampling.from_model();
    options.log_requests = !flags.no_access_log;
    if (!flags.common.json) options.say = Tell;
    return {};
}

void AddServe(const Command& app, int& status) {
    auto flags = std::make_shared<ServeFlags>();
    const Command serve = app.AddCommand(
        "serve", "Serve a model over HTTP with the APIs of OpenAI, Anthropic and Ollama",
        kServeFooter);
    // config.h replaces it before parsing.
    serve.AddOption("--config FILE", flags->config,
                    "Read flags from a TOML file, such as ctx = 8192");
    AddServedModels(serve, *flags);
    AddServing(serve, *flags);
    AddChat(serve, *flags);
    AddSamplingFlags(serve, flags->sampling);
    AddDraftFlags(serve, flags->server.batch.draft);
    AddLog(serve, *flags);
    AddLimits(serve, flags->server.http.limits);
    AddAccess(serve, flags->server);
    AddClusterFlags(serve, flags->common);
    AddLayoutFlags(serve, flags->common);
    AddRecoveryFlags(serve, flags->common);
    const Command serving = serve.Group("Serving");
    serving.AddFlag("--restart", flags->restart,
                    "Restart the server when it ends for a reason that may pass, such as an "
                    "unreachable host; wait for hosts without a limit, and answer 503 meanwhile");
    serving.AddFlag(
        "--unit", flags->unit,
        "With --restart: print a systemd --user unit for this command, and start nothing");
    AddEngineFlags(serve, flags->common);
    AddKeptPages(serve, flags->common.job);
    AddSlots(serve, flags->common.job);
    SetCallback(serve, flags, flags->common.json, status, Serve);
}

}  // namespace weft::cli
