#include "serve/pool/pool.h"

#include <fmt/format.h>
#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "serve/api/gate.h"
#include "serve/describe.h"
#include "serve/page.h"
#include "serve/pool/pool_impl.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;

constexpr auto kTurn = std::chrono::milliseconds(50);
constexpr int64_t kEndMs = 10'000;  // longest end of an idle process
constexpr int64_t kLastAnswersMs = 1000;

}  // namespace

std::string MemoryText(const MemoryBytes::value_type& need) {
    return fmt::format("{} of {}", BytesText(need.second),
                       need.first.empty() ? "memory" : "the memory of " + need.first);
}

PoolServer::Impl::Impl(PoolOptions options)
    : options_(std::move(options)),
      schedule_(options_.limits, options_.needs),
      processes_(options_.models.size()),
      counts_(options_.models.size()),
      users_(options_.models.size()),
      charges_(options_.models.size()),
      budget_(options_.load_share),
      limiter_(options_.front.api.rates) {}

PoolServer::Impl::~Impl() {
    http_.reset();
    reader_.join();
    for (const Process& process : processes_) {
        if (process.pid > 0) ::kill(process.pid, SIGKILL);
    }
}

Status PoolServer::Impl::Open() {
    for (size_t i = 0; i < options_.models.size(); ++i) {
        WEFT_ASSIGN(Served served, DescribeUnloaded(options_.models[i]));
        for (const Served& other : served_) {
            if (!served.AdapterOf(other.name) && !other.AdapterOf(served.name)) continue;
            return MakeError(ErrorCode::kUsage,
                             "two models have the name '{}': {} and {}. Name one of them: "
                             "NAME={}",
                             served.name, other.path, served.path, served.path);
        }
        if (const auto* lack = FindLack(options_.needs[i], options_.limits.memory)) {
            return MakeError(ErrorCode::kOutOfMemory,
                             "{} needs {} (weights, KV cache of {} tokens, activations); {} are "
                             "available. Use a smaller --ctx or --kv-tokens, or a smaller "
                             "quantization",
                             served.name, MemoryText(*lack), options_.models[i].job.kv_tokens,
                             BytesText(options_.limits.memory.at(lack->first)));
        }
        served_.push_back(std::move(served));
    }
    ServerOptions& front = options_.front;
    if (!front.key_file.empty()) {
        WEFT_ASSIGN(keys_, KeyStore::Open(front.key_file));
    }
    front.http.drain_paths = {"/live",  "/health",  "/healthz",   "/v1/health",
                              "/ready", "/metrics", "/api/status"};
    front.http.files_per_connection = 2;
    front.http.id_headers = {{"/v1/messages", "request-id"}};
    log_ = std::make_unique<RequestLog>(front.log_requests);
    front.http.observer = [log = log_.get()](const HttpRecord& record) { log->Add(record); };
    front.http.judge_head = [this](const HttpRequest& head) {
        return JudgeHead(head, keys_.get());
    };
    WEFT_ASSIGN(http_, HttpServer::Start(front.http, [this](std::shared_ptr<Exchange> exchange) {
                    Handle(std::move(exchange));
                }));
    return {};
}

// Runs on an I/O thread of the HTTP layer.
void PoolServer::Impl::Handle(std::shared_ptr<Exchange> exchange) {
    if (ServePage(*exchange)) return;
    asio::post(context_, [this, exchange = std::move(exchange)] { Route(exchange); });
}

Status PoolServer::Impl::Run() {
    schedule_.Arrive(kFirstLoad, 0, NowMs());
    asio::co_spawn(context_, Tick(), Rethrow);
    const auto work = asio::make_work_guard(context_);
    context_.run();
    return first_error_ ? Status(*first_error_) : Status();
}

asio::awaitable<void> PoolServer::Impl::Tick() {
    asio::steady_timer timer(context_);
    while (true) {
        const int64_t now_ms = NowMs();
        KillLate(now_ms);
        Act();
        LogWaits(now_ms);
        if (options_.front.reload != nullptr && options_.front.reload->exchange(false)) Reload();
        AdvanceStop(now_ms);
        if (ends_ && requests_.empty() &&
            std::ranges::all_of(processes_, [](const Process& p) { return p.pid < 0; })) {
            break;
        }
        timer.expires_after(kTurn);
        co_await timer.async_wait(asio::use_awaitable);
    }
    const int64_t until_ms = std::max(NowMs() + kLastAnswersMs, drained_ms_);
    while (http_->open_exchanges() > 0 && NowMs() < until_ms) {
        timer.expires_after(kTurn);
        co_await timer.async_wait(asio::use_awaitable);
    }
    context_.stop();
}

void PoolServer::Impl::Say(const std::string& line) const {
    if (options_.front.say) options_.front.say(line);
}

// Takes the steps of a stop that are due, in the order of Server::AdvanceStop. The processes of
// models end when the last request has ended, or when the time for it is over; answers that still
// run are then cut.
void PoolServer::Impl::AdvanceStop(int64_t now_ms) {
    const ServerOptions& front = options_.front;
    const bool asked = front.interrupted != nullptr && front.interrupted->load();
    if (stop_ms_ == 0 && (asked || first_error_)) {
        stop_ms_ = now_ms;
        http_->EndKeepAlive();
    }
    if (stop_ms_ == 0 || ends_) return;
    const int64_t refuse_ms = stop_ms_ + (first_error_ ? 0 : front.drain_delay_ms);
    if (now_ms < refuse_ms) return;
    if (!refuses_) {
        refuses_ = true;
        if (!first_error_) drained_ms_ = refuse_ms + front.drain_ms;
        http_->Drain();
        if (!first_error_) Say("shutting down: running requests may finish");
        return;  // requests that have arrived are queued for this thread
    }
    if (!requests_.empty() && !first_error_ && now_ms < drained_ms_) return;
    ends_ = true;
    std::vector<uint64_t> waiting;
    for (const auto& [id, request] : requests_) {
        if (request.socket == nullptr) waiting.push_back(id);
    }
    for (const uint64_t id : waiting) {
        schedule_.Leave(id, {}, now_ms);
        Fail(id, {503, "The server is shutting down.", "", "draining"});
    }
    for (Process& process : processes_) {
        if (process.pid < 0) continue;
        ::kill(process.pid, SIGTERM);
        process.kill_ms = now_ms + kEndMs;
    }
}

// A file that cannot be read leaves the old one in use and is logged.
void PoolServer::Impl::Reload() {
    if (keys_ != nullptr) [[maybe_unused]]
        const Status logged = keys_->Reload();
    for (const Process& process : processes_) {
        // (A process without keys stops at SIGHUP.)
        if (process.served && process.pid > 0 && keys_ != nullptr) ::kill(process.pid, SIGHUP);
    }
    if (options_.front.http.tls_cert.empty()) return;
    const Status reloaded = http_->ReloadTls();
    if (!reloaded.ok()) Log(LogLevel::kWarning, "{}", reloaded.error().message);
}

PoolServer::PoolServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PoolServer::~PoolServer() = default;

Result<std::unique_ptr<PoolServer>> PoolServer::Start(PoolOptions options) {
    if (!IsLoopback(options.front.http.host) && options.front.key_file.empty()) {
        return NeedsKeys(options.front.http.host);
    }
    auto impl = std::make_unique<Impl>(std::move(options));
    WEFT_TRY(impl->Open());
    return std::unique_ptr<PoolServer>(new PoolServer(std::move(impl)));
}

Status PoolServer::Run() {
    return impl_->Run();
}

int PoolServer::port() const {
    return impl_->http().port();
}

std::string PoolServer::url() const {
    return impl_->http().url();
}

}  // namespace weft::serve
