#include "serve/server.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/log.h"
#include "base/start_thread.h"
#include "engine/rank/device_options.h"
#include "hw/cpu.h"
#include "model/builder.h"
#include "model_files/model_file.h"
#include "serve/api/gate.h"
#include "serve/api/openai/response_folder.h"
#include "serve/api/status.h"
#include "serve/describe.h"
#include "serve/page.h"

namespace weft::serve {
namespace {

constexpr auto kWatchTurn = std::chrono::milliseconds(50);
constexpr int64_t kLastAnswersNs = 1'000'000'000;

// Makes glibc return freed large buffers to the system. Otherwise the heap of each thread could
// keep up to 64 MB of freed memory.
void ReturnLargeBuffers() {
#ifdef __GLIBC__
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace

bool IsLoopback(const std::string& host) {
    return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

Error NeedsKeys(const std::string& host) {
    return MakeError(
        ErrorCode::kUsage,
        "--host {}: other machines can reach this address and use the server. Give "
        "--api-key-file FILE ('weft key new NAME >> FILE' makes a key), or listen on 127.0.0.1",
        host);
}

Server::Server(ServerOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
    if (!IsLoopback(options.http.host) && options.key_file.empty()) {
        return NeedsKeys(options.http.host);
    }
    std::unique_ptr<Server> server(new Server(std::move(options)));
    WEFT_TRY(server->Open());
    return server;
}

Status Server::Open() {
    ReturnLargeBuffers();
    WEFT_TRY(NameModels(options_, served_));
    if (!options_.key_file.empty()) {
        WEFT_ASSIGN(keys_, KeyStore::Open(options_.key_file));
        options_.api.keys = keys_.get();
    }
    // (With a limit of 0, a folder of other servers would be emptied.)
    if (!options_.responses_folder.empty() && options_.api.max_responses > 0) {
        WEFT_ASSIGN(options_.api.responses,
                    ResponseFolder::Open(options_.responses_folder,
                                         {.count = options_.api.max_responses,
                                          .bytes = options_.api.max_responses_bytes,
                                          .age_s = options_.max_responses_age_s}));
    }
    options_.http.drain_paths = {"/live",  "/health",  "/healthz",   "/v1/health",
                                 "/ready", "/metrics", "/api/status"};
    options_.http.id_headers = {{"/v1/messages", "request-id"}};  // as in Anthropic's API
    log_ = std::make_unique<RequestLog>(options_.log_requests);
    options_.api.log = log_.get();
    options_.http.observer = [log = log_.get()](const HttpRecord& record) { log->Add(record); };
    options_.http.judge_head = [this](const HttpRequest& head) {
        if (ready_.load() == nullptr) {
            return head.method == "POST" ? HeadVerdict{WhileLoading(head.path)}
                                         : JudgeHead(head, nullptr);
        }
        HeadVerdict verdict = JudgeHead(head, keys_.get());
        if (verdict.refusal) metrics_->AddRefused(verdict.refusal->status);
        return verdict;
    };
    WEFT_ASSIGN(http_, HttpServer::Start(options_.http, [this](std::shared_ptr<Exchange> exchange) {
                    Handle(std::move(exchange));
                }));
    {
        WEFT_ASSIGN(const auto source, model_files::OpenModel(options_.job.model));
        WEFT_TRY(ReadHints(options_, *source, served_));
    }
    options_.job.outputs = served_.generates ? model::Outputs::kBoth : model::Outputs::kHidden;
    WEFT_TRY(StartThread(watcher_, [this] { Watch(); }));
    options_.cluster.stop = &force_stop_;
    options_.api.work_bytes = options_.http.limits.all_bodies_bytes / 4 * 3;
    options_.api.cores = AllowedCores();  // the engine pins this thread to one core
    WEFT_ASSIGN(engine_, engine::Engine::Start(options_.cluster, options_.job, options_.batch));
    Describe();
    metrics_ = std::make_unique<Metrics>(
        options_.metrics_prefix,
        MetricsInfo{served_.name, engine_->context(), engine_->rank().page_tokens(),
                    options_.batch.prefix_cache, options_.job.kv_dtype.Name()});
    options_.api.metrics = metrics_.get();
    api_ = std::make_unique<Api>(served_, options_.api);
    WEFT_TRY(api_->started());
    watched_ = engine_.get();
    ready_ = api_.get();
    return {};
}

void Server::Describe() {
    served_.engine = engine_.get();
    served_.created_s = std::time(nullptr);
    served_.context = engine_->context();
    served_.hyper = engine_->hyper();
    served_.generates = engine_->generates();
    const tokenizer::Tokenizer& tokenizer = engine_->tokenizer();
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        served_.longest_piece_bytes =
            std::max(served_.longest_piece_bytes, tokenizer.Piece(id).size());
    }
    served_.slots = options_.batch.max_seqs;
    served_.slot_folder = options_.job.slot_dir;
    served_.speculative = options_.batch.draft.on();
    const model_files::ModelSource& source = engine_->rank().source();
    ReadTemplate(source, tokenizer, served_);
    const auto own = source.meta().StringOr("tokenizer.chat_template", "");
    if (!served_.chat && (!own.ok() || !own->empty())) {
        Log(LogLevel::kWarning, "{}. Chat requests are refused; completions are served",
            served_.chat_error);
    }
    served_.constraints = std::make_unique<Constraints>(tokenizer, served_.call_frame);
    served_.on_cpu = engine_->rank().device()->info().uses_host_cores &&
                     engine::MayAllUseHostCores(options_.job.device);
}

Server::~Server() {
    over_ = true;
    if (watcher_.joinable()) watcher_.join();
    ready_ = nullptr;
    // Destroy callers first: connections, then the API's workers. (Run has waited until the last
    // answers were sent.)
    http_.reset();
    api_.reset();
    engine_.reset();
}

void Server::Handle(std::shared_ptr<Exchange> exchange) {
    if (Api* api = ready_.load(); api != nullptr) return api->Handle(std::move(exchange));
    if (ServePage(*exchange)) return;  // the page shows the waiting state itself
    if (exchange->request().path == kLivePath) return SendAlive(*exchange);
    exchange->Send(503, {{"Content-Type", "application/json"}, {"Retry-After", "5"}},
                   WhileLoading(exchange->request().path).body);
}

// Watches for requests to reload and to stop.
void Server::Watch() {
    while (!over_) {
        std::this_thread::sleep_for(kWatchTurn);
        if (options_.reload != nullptr && options_.reload->exchange(false)) Reload();
        if (options_.interrupted != nullptr && options_.interrupted->load()) AdvanceStop();
    }
}

// Carries out the steps of a stop that are due: /ready fails; the HTTP layer refuses requests; once
// the accepted requests have reached the engine, the engine ends after the last of them; the
// engine ends those that take too long.
void Server::AdvanceStop() {
    engine::Engine* engine = watched_.load();
    if (engine == nullptr) {
        force_stop_ = true;
        return;
    }
    const auto say = [&](const std::string& line) {
        if (options_.say) options_.say(line);
    };
    if (stop_ns_ == 0) {
        stop_ns_ = NowNs();
        api_->Leave();
        http_->EndKeepAlive();
        if (options_.drain_delay_ms > 0) {
            say(fmt::format("shutting down: accepting requests for another {:.1f} s",
                            static_cast<double>(options_.drain_delay_ms) * 1e-3));
        }
    }
    const int64_t refuse_ns = stop_ns_ + options_.drain_delay_ms * 1'000'000;
    if (NowNs() < refuse_ns) return;
    const int64_t drained_ns = refuse_ns + options_.drain_ms * 1'000'000;
    if (!refuses_) {
        refuses_ = true;
        drained_ns_ = drained_ns;
        http_->Drain();
        say("shutting down: running requests may finish");
    }
    // Drain also ends a recovery, which would otherwise wait for the lost rank.
    const bool recovers = engine->stats().state == engine::EngineState::kRecovering;
    if (!engine_drains_ && (recovers || !api_->reading())) {
        engine_drains_ = true;
        engine->Drain();
    }
    if (NowNs() > drained_ns) engine->Stop();
}

// A file that cannot be read leaves the old one in use and is logged.
void Server::Reload() {
    if (keys_ != nullptr) [[maybe_unused]]
        const Status logged = keys_->Reload();
    if (options_.http.tls_cert.empty()) return;
    const Status reloaded = http_->ReloadTls();
    if (!reloaded.ok()) Log(LogLevel::kWarning, "{}", reloaded.error().message);
}

Status Server::Run() {
    const Status ended = engine_->Run();
    // Wait until the last answers have reached the clients: in the rest of drain_ms, and at least
    // as long as those need that have just ended.
    const int64_t until_ns = std::max<int64_t>(NowNs() + kLastAnswersNs, drained_ns_);
    while (http_->open_exchanges() > 0 && NowNs() < until_ns) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!ended.ok()) return ended;
    WEFT_ASSIGN(reports_, engine_->Finish());
    return {};
}

}  // namespace weft::serve
