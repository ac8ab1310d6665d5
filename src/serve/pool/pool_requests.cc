// Requests: keys, the model that each is for, waiting, forwarding.
#include "serve/pool/pool_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "serve/api/gate.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/ollama/ollama_dialect.h"
#include "serve/api/openai/model_lists.h"
#include "serve/api/routes.h"
#include "serve/api/status.h"
#include "serve/pool/forward.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;

// Larger bodies are read on another thread, because this one forwards all answers.
constexpr size_t kSmallBytes = 64 << 10;
// Upper bounds of the memory of a parsed body, as in Api.
constexpr size_t kParsedPerByte = 48, kMostParsed = 192 << 20;
constexpr int64_t kCommentMs = 1000;
constexpr int64_t kEventMs = 8000;      // as HttpOptions::silence_ms
constexpr int64_t kLeastLoadMs = 1000;  // charged for a load
constexpr int kDeathTurns = 50;         // waits until a dead process is reaped
constexpr auto kDeathTurn = std::chrono::milliseconds(2);

bool IsForwardedGet(const std::string& path) {
    return path == "/props" || path == "/slots" || path == "/tokenizer_info";
}

}  // namespace

void PoolServer::Impl::Route(const std::shared_ptr<Exchange>& exchange) {
    const HttpRequest& request = exchange->request();
    const std::optional<std::string> key = Authenticate(*exchange);
    if (!key) return;
    const bool get = request.method == "GET" || request.method == "HEAD";
    if (FindStored(request.path) && Lists(AllowedMethods(request.path), request.method)) {
        asio::co_spawn(context_, AnswerStored(exchange, *key), Rethrow);
        return;
    }
    if (get && AnswerGet(exchange)) return;
    const auto* route = FindRoute(request.method, request.path);
    if ((get && IsForwardedGet(request.path)) || (route != nullptr && request.method == "POST")) {
        return ReadRowRequest(exchange, *key);
    }
    if (route != nullptr) return AnswerOllama(*exchange, *route);
    const std::string allowed = AllowedMethods(request.path);
    Headers headers;
    if (!allowed.empty()) headers.emplace_back("Allow", allowed);
    SendError(*exchange, NoSuchRoute(request.method, request.path, allowed), std::move(headers));
}

// The name of the request's key; "" if no key is required. nullopt: the request was refused.
std::optional<std::string> PoolServer::Impl::Authenticate(Exchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (keys_ == nullptr || IsProbe(request.path)) return "";
    const std::string_view key = PresentedKey(request);
    const std::shared_ptr<const KeyRing> ring = keys_->ring();
    if (const ApiKey* known = ring->Find(key); known != nullptr) {
        exchange.Note([&](RequestNote& note) { note.key = known->name; });
        return known->name;
    }
    SendError(exchange, NoKey(key), {{"WWW-Authenticate", "Bearer"}});
    return {};
}

void PoolServer::Impl::SendError(Exchange& exchange, const ApiError& error, Headers headers) {
    // (The message may quote the request, which the log must not.)
    exchange.Note([&](RequestNote& note) {
        note.passed_on = false;
        note.error = error.status < 500 ? error.code : error.message;
    });
    headers.emplace_back("Content-Type", "application/json");
    const bool says_when = std::ranges::any_of(
        headers, [](const auto& header) { return header.first == "Retry-After"; });
    if (!says_when && (error.status == 429 || error.status == 503)) {
        headers.emplace_back("Retry-After", "1");
    }
    exchange.Send(error.status, std::move(headers), ErrorFor(exchange.request().path, error));
}

void PoolServer::Impl::ReadRowRequest(std::shared_ptr<Exchange> exchange, std::string key) {
    const size_t bytes = exchange->request().body.size();
    const std::string id = exchange->request().id;
    const std::string turn = keys_ != nullptr ? key : exchange->request().peer;
    auto read = [this, bytes, exchange = std::move(exchange), key = std::move(key)]() mutable {
        PoolRequest ask;
        std::optional<ApiError> error;
        if (exchange->gone()) return;
        if (bytes > kSmallBytes) {
            const size_t parsed = std::min(kParsedPerByte * bytes, kMostParsed);
            if (const auto refusal = exchange->Reserve(parsed, false)) {
                error = ApiError{refusal->status, refusal->message, "", refusal->code};
            }
        }
        if (!error) error = ReadPoolRequest(exchange->request(), ask);
        exchange->Release();
        asio::post(context_, [this, exchange = std::move(exchange), key = std::move(key),
                              ask = std::move(ask), error = std::move(error)]() mutable {
            if (error) return SendError(*exchange, *error);
            Admit(std::move(exchange), std::move(key), std::move(ask));
        });
    };
    if (bytes <= kSmallBytes) return read();
    large_.Push(turn, {id, std::move(read), bytes});
    ReadNext();
}

void PoolServer::Impl::ReadNext() {
    if (reads_ || !large_.ready()) return;
    reads_ = true;
    auto [turn, task] = large_.Pop();
    asio::post(reader_, [this, turn = turn, run = std::move(task.run)]() mutable {
        run();
        run = nullptr;  // releases the request
        asio::post(context_, [this, turn = std::move(turn)] {
            reads_ = false;
            large_.Done(turn);
            ReadNext();
        });
    });
}

std::optional<size_t> PoolServer::Impl::ModelOf(const std::string& name) const {
    if (name.empty()) return 0;
    const auto found = std::ranges::find_if(
        served_, [&](const Served& s) { return s.AdapterOf(name).has_value(); });
    if (found == served_.end()) return {};
    return static_cast<size_t>(found - served_.begin());
}

// Returns an error if a request of `key` may not wait for its model; the limits equal the limits of
// one server's queue (Api::WhyNotQueue): a key below its equal share may still wait.
std::optional<ApiError> PoolServer::Impl::WhyNotWait(const std::string& key) const {
    const auto most = static_cast<size_t>(options_.front.api.max_waiting);
    size_t all = 0, own = 0;
    std::set<std::string_view> waiting = {key};
    for (const auto& [id, request] : requests_) {
        if (request.socket != nullptr) continue;
        ++all;
        own += request.key == key ? 1 : 0;
        waiting.insert(request.key);
    }
    const bool keys = keys_ != nullptr;
    const size_t most_own = keys ? std::max<size_t>(1, most / 2) : most;
    const size_t share = keys ? std::max<size_t>(1, most / waiting.size()) : 0;
    if (own < most_own && (all < most || own < share)) return {};
    return ApiError{429,
                    fmt::format("{} requests are waiting for a model; the limit is {} "
                                "(--max-waiting; half of it for one key). Try again later.",
                                all, most),
                    "", "server_overloaded"};
}

void PoolServer::Impl::Admit(std::shared_ptr<Exchange> exchange, std::string key, PoolRequest ask) {
    const HttpRequest& request = exchange->request();
    const bool ollama = IsOllamaPath(request.path);
    std::optional<size_t> model = ModelOf(ask.model);
    // (The page asks for /props when it opens, which should load nothing.)
    if (ask.model.empty() && request.method != "POST") model = schedule_.last_used().value_or(0);
    const auto* route = FindRoute(request.method, request.path);
    const bool refused = route != nullptr && route->reply == OllamaRefuse;
    if ((!model || ask.names_nothing) && !refused) {
        return SendError(*exchange, ollama ? UnknownOllamaModel(ask.model, served_)
                                           : UnknownModel(ask.model, served_));
    }
    if (refused || request.path == "/api/show" || request.path == "/api/pull") {
        return AnswerOllama(*exchange, *route);
    }
    if (ends_) {
        return SendError(*exchange, {503, "The server is shutting down.", "", "draining"});
    }
    const bool loaded = schedule_.state(*model) == State::kLoaded;
    if (ask.unloads && !loaded && schedule_.waiting(*model) == 0) {
        const OllamaOptions words{.chat = request.path == "/api/chat", .model = ask.model};
        return exchange->Send(200, {{"Content-Type", "application/json"}},
                              OllamaNothing(words, "unload"));
    }
    if (!loaded) {
        if (const auto error = WhyNotWait(key)) return SendError(*exchange, *error);
    }
    const int64_t now_ms = NowMs();
    Request entry = {.exchange = exchange,
                     .model = *model,
                     .ask = std::move(ask),
                     .key = std::move(key),
                     .since_ms = now_ms,
                     .comment_ms = now_ms - kCommentMs,
                     .event_ms = now_ms};
    if (!MayRun(*exchange, *model, entry)) return;
    const uint64_t id = ++last_id_;
    requests_.emplace(id, std::move(entry));
    exchange->OnDisconnect([this, id] { asio::post(context_, [this, id] { ClientLeft(id); }); });
    schedule_.Arrive(id, *model, now_ms);
    Act();
    LogWaits(now_ms);
}

// Whether the next request of `model` makes it load.
bool PoolServer::Impl::CausesLoad(size_t model) const {
    const State state = schedule_.state(model);
    return (state == State::kUnloaded || state == State::kUnloading) &&
           schedule_.waiting(model) == 0;
}

// Applies the limits of the request's key: rates and concurrency (the process of the model charges
// them), and the time for loads. Returns false if it refused the request.
bool PoolServer::Impl::MayRun(Exchange& exchange, size_t model, Request& request) {
    if (keys_ == nullptr) return true;
    const std::shared_ptr<const KeyRing> ring = keys_->ring();
    const ApiKey* key = ring->Find(PresentedKey(exchange.request()));
    if (key == nullptr) {  // it was removed meanwhile
        SendError(exchange, NoKey(request.key), {{"WWW-Authenticate", "Bearer"}});
        return false;
    }
    if (exchange.request().method == "POST") {
        Limiter::Admission admission = limiter_.Enter(*key);
        if (admission.refused()) {
            SendError(exchange, {429, admission.message, "", admission.code}, admission.headers);
            return false;
        }
        request.ticket = std::move(admission.ticket);
    }
    if (!CausesLoad(model) || ring->keys().size() < 2) return true;
    const int64_t now_ms = NowMs();
    if (const int64_t wait_ms = budget_.WaitMs(key->name, now_ms); wait_ms > 0) {
        const std::string text = fmt::format(
            "the key '{}' has made this server load models for {:.0f} % of the time "
            "(--load-share), and the model '{}' is not loaded; try again in {}",
            key->name, 100 * options_.load_share, served_[model].name, DurationText(wait_ms));
        request.ticket.reset();
        SendError(exchange, {429, text, "", "load_limit_exceeded"},
                  {{"Retry-After", std::to_string((wait_ms + 999) / 1000)}});
        return false;
    }
    const Counts& counts = counts_[model];
    const double usual_ms =
        counts.load_s * 1e3 / static_cast<double>(std::max<uint64_t>(1, counts.loads));
    charges_[model] = {key->name, std::max(kLeastLoadMs, static_cast<int64_t>(usual_ms))};
    budget_.Charge(key->name, charges_[model]->charged_ms, now_ms);
    return true;
}

// Charges the key for the time that the load took; 0: it did not begin.
void PoolServer::Impl::SettleLoad(size_t model, int64_t load_ms) {
    const std::optional<LoadCharge> charge = std::exchange(charges_[model], std::nullopt);
    if (!charge) return;
    const int64_t taken_ms = load_ms == 0 ? 0 : std::max(kLeastLoadMs, load_ms);
    budget_.Charge(charge->key, taken_ms - charge->charged_ms, NowMs());
}

// Gives the charge back if no request waits for the load any more.
void PoolServer::Impl::ForgetLoad(size_t model) {
    if (CausesLoad(model)) SettleLoad(model, 0);
}

// Carries out the actions that are due.
void PoolServer::Impl::Act() {
    if (ends_ || first_error_) return;
    for (const PoolSchedule::Action& action : schedule_.Next(NowMs(), options_.free_bytes)) {
        const std::string& name = served_[action.model].name;
        switch (action.step) {
            case Step::kLoad: Load(action.model); break;
            case Step::kUnload: Unload(action.model); break;
            case Step::kRun: Begin(action.request); break;
            case Step::kExpire:
                Fail(action.request, {503,
                                      fmt::format("The model '{}' could not be loaded within {} ms "
                                                  "(--load-timeout-ms): other models are busy.",
                                                  name, options_.limits.wait_ms),
                                      "", "model_busy"});
                break;
            case Step::kRefuse: Refuse(action.request, action.model); break;
        }
    }
}

// Refuses a waiting request because the machine lacks the memory for its model.
void PoolServer::Impl::Refuse(uint64_t id, size_t model) {
    const MemoryBytes free = options_.free_bytes();
    const auto* lack = FindLack(options_.needs[model], free);
    const std::string text =
        lack == nullptr
            ? fmt::format(
                  "The model '{}' could not be loaded: it lacked memory, which is free "
                  "now. Ask again.",
                  served_[model].name)
            : fmt::format("The model '{}' could not be loaded: it needs {}; {} are free.",
                          served_[model].name, MemoryText(*lack), BytesText(free.at(lack->first)));
    if (id == kFirstLoad) first_error_ = Error{ErrorCode::kOutOfMemory, text};  // (Run reports it)
    Fail(id, {503, text, "", "model_load_failed"});
}

void PoolServer::Impl::Begin(uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return schedule_.Leave(id, {}, NowMs());  // loads the first model
    Request& request = found->second;
    Users& users = users_[request.model];
    if (users.key.empty()) users.key = request.key;
    users.several = users.several || users.key != request.key;
    request.socket = std::make_shared<Socket>(context_);
    request.exchange->Note([](RequestNote& note) { note.passed_on = true; });
    asio::co_spawn(context_, RunRequest(id), Rethrow);
}

asio::awaitable<void> PoolServer::Impl::RunRequest(uint64_t id) {
    Request& request = requests_.at(id);
    const int port = processes_[request.model].port;
    const pid_t pid = processes_[request.model].pid;
    Exchange& exchange = *request.exchange;
    const std::function<void()> ends = [&request] { request.ticket.reset(); };
    const Forwarded done =
        co_await Forward(*request.socket, port, exchange, request.ask.form, request.begun, ends);
    request.begun = done.begun;
    if (!done.broken.empty()) {
        // If the process has died, the key's charges are refunded before the answer.
        asio::steady_timer timer(context_);
        for (int i = 0; i < kDeathTurns && IsLoaded(request.model, pid); ++i) {
            timer.expires_after(kDeathTurn);
            co_await timer.async_wait(asio::use_awaitable);
        }
        const std::string& why = counts_[request.model].killed_why;
        FailRequest(request,
                    {503,
                     fmt::format("The model '{}' gave no complete answer: {}.",
                                 served_[request.model].name, why.empty() ? done.broken : why),
                     "", "model_lost"});
    }
    // No key may unload a model that others use.
    const bool alone = !users_[request.model].several;
    schedule_.Leave(id, alone ? request.ask.keep_ms : std::nullopt, NowMs());
    requests_.erase(id);
    Act();
}

void PoolServer::Impl::ClientLeft(uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    if (found->second.socket != nullptr) {
        boost::system::error_code ignored;
        found->second.socket->close(ignored);  // ends RunRequest
        return;
    }
    schedule_.Leave(id, {}, NowMs());
    const size_t model = found->second.model;
    requests_.erase(found);
    ForgetLoad(model);
}

// Ends a request that waits.
void PoolServer::Impl::Fail(uint64_t id, const ApiError& error) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    FailRequest(found->second, error);
    const size_t model = found->second.model;
    requests_.erase(found);
    ForgetLoad(model);
}

void PoolServer::Impl::FailRequest(Request& request, const ApiError& error) {
    Exchange& exchange = *request.exchange;
    request.ticket.reset();  // before the client sees the end
    if (!request.begun) return SendError(exchange, error);
    exchange.Note([&](RequestNote& note) {
        note.passed_on = false;
        note.error = error.message;
    });
    exchange.Write(ErrorEvent(request.ask.form, ErrorFor(exchange.request().path, error)));
    exchange.End();
}

// Sends the comments and events that are due to streams that wait.
void PoolServer::Impl::LogWaits(int64_t now_ms) {
    for (auto& [id, request] : requests_) {
        const StreamForm form = request.ask.form;
        if (request.socket != nullptr || form == StreamForm::kNone) continue;
        std::string part;
        if (now_ms - request.comment_ms >= kCommentMs) {
            request.comment_ms = now_ms;
            part = WaitComment(form, WaitText(request, now_ms));
        }
        if (now_ms - request.event_ms >= kEventMs) {
            request.event_ms = now_ms;
            part += WaitEvent(request.ask, request.exchange->request().path == "/api/chat");
        }
        if (part.empty()) continue;
        if (!std::exchange(request.begun, true)) {
            request.exchange->Begin(200, {{"Content-Type", TypeOf(form)},
                                          {"Cache-Control", "no-cache"},
                                          {"X-Accel-Buffering", "no"}});
        }
        request.exchange->Write(std::move(part));
    }
}

std::string PoolServer::Impl::WaitText(const Request& request, int64_t now_ms) const {
    const std::string& name = served_[request.model].name;
    if (schedule_.state(request.model) == State::kLoading) {
        return fmt::format("loading {} ({} s)", name,
                           (now_ms - processes_[request.model].began_ms) / 1000);
    }
    const std::optional<size_t> blocker = schedule_.blocker();
    if (!blocker) return fmt::format("waiting to load {}", name);
    const std::string& other = served_[*blocker].name;
    switch (schedule_.state(*blocker)) {
        case State::kUnloading: return fmt::format("unloading {}", other);
        case State::kLoading: return fmt::format("waiting for {} to load", other);
        case State::kUnloaded:
        case State::kLoaded: break;
    }
    return fmt::format("waiting for {} to finish", other);
}

}  // namespace weft::serve
