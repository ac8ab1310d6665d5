#include "serve/api/api.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "hw/cpu.h"
#include "serve/api/gate.h"
#include "serve/api/llama/llama_server.h"
#include "serve/api/media.h"
#include "serve/api/openai/input_items.h"
#include "serve/api/openai/model_lists.h"
#include "serve/api/openai/response_store.h"
#include "serve/api/routes.h"
#include "serve/api/status.h"
#include "serve/page.h"

namespace weft::serve {
namespace {

const Headers kJsonHeaders{{"Content-Type", "application/json"}};

// Requests up to this size are small: the slowest text (digits, about 1 MB/s) is tokenized within
// 100 ms.
constexpr size_t kSmallBytes = 64 << 10;
// Bytes of an answer that are formatted in the time of tokenizing one byte, approximately.
constexpr size_t kFormattedPerByteRead = 32;
constexpr int kLargeNice = 5;
constexpr size_t kMostNotices = 1000;

// Upper bound of the memory for work on a request, besides its body. The worst case is a text of
// digits: one-byte words, their tokens, and the token list in the answer. kMostPlainBytes or the
// context bounds texts; kMostBodyValues bounds JSON values.
uint64_t WorkBytes(size_t body_bytes) {
    constexpr uint64_t kMost = uint64_t{192} << 20;
    return std::min<uint64_t>(48 * body_bytes, kMost);
}

// Whether the quote at `at` opens a quotation, rather than standing inside a word.
bool OpensQuote(std::string_view text, size_t at) {
    if (text[at] == '"') return true;
    const auto before = static_cast<unsigned char>(at > 0 ? text[at - 1] : ' ');
    return text[at] == '\'' && std::isalnum(before) == 0;
}

// The error as logged, without text of the request: cut before the first quotation other than the
// parameter's name.
std::string WithoutQuotes(const ApiError& error) {
    const std::string name = fmt::format("'{}'", error.param);
    const std::string_view text = error.message;
    if (error.quotes) return fmt::format("{}: {}", error.param, error.code);
    for (size_t at = 0; at < text.size(); ++at) {
        if (!OpensQuote(text, at)) continue;
        if (!text.substr(at).starts_with(name)) {
            return fmt::format("{}... ({})", text.substr(0, at), error.code);
        }
        at += name.size() - 1;
    }
    return error.message;
}

void NoteError(Exchange& exchange, const ApiError& error) {
    const bool of_request = error.status == 400 || error.status == 404;
    exchange.Note([text = of_request ? WithoutQuotes(error) : error.message](RequestNote& note) {
        note.error = text;
    });
}

void SendError(Exchange& exchange, const ApiError& error, Headers headers = {}) {
    NoteError(exchange, error);
    headers.insert(headers.end(), kJsonHeaders.begin(), kJsonHeaders.end());
    if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
    exchange.Send(error.status, std::move(headers), ErrorFor(exchange.request().path, error));
}

void SendRefusal(Exchange& exchange, const Refusal& refusal, Headers headers = {}) {
    SendError(exchange, {refusal.status, refusal.message, "", refusal.code}, std::move(headers));
}

// Answers 200 to a request that the engine does not run.
void Send(Exchange& exchange, Headers headers, const std::string& type, std::string body) {
    if (const auto refusal = exchange.Hold(body.size())) {
        return SendRefusal(exchange, *refusal, std::move(headers));
    }
    headers.emplace_back("Content-Type", type);
    exchange.Send(200, std::move(headers), std::move(body));
}

}  // namespace

// Owner of a request's stored responses and slots: its key. Without keys there is one owner.
std::string Api::OwnerOf(const HttpRequest& request) const {
    if (options_.keys == nullptr) return "";
    const std::shared_ptr<const KeyRing> ring = options_.keys->ring();
    const ApiKey* key = ring->Find(PresentedKey(request));
    return key == nullptr ? "nobody" : Hex(key->digest);
}

Api::Api(const Served& served, ApiOptions options)
    : served_(served),
      options_(std::move(options)),
      limiter_(options_.rates),
      responses_(options_.responses != nullptr
                     ? options_.responses
                     : std::make_shared<ResponseMemory>(options_.max_responses,
                                                        options_.max_responses_bytes)),
      slots_(std::make_shared<SlotTable>(std::max<int64_t>(1, served.slots), served.context,
                                         served.speculative)) {
    const size_t small = options_.workers;
    const size_t large = small == 0 ? 0 : std::max<size_t>(1, small - 1);
    for (size_t i = 0; i < small; ++i) StartWorker(small_, 0);
    for (size_t i = 0; i < 2 * large; ++i) StartWorker(i < large ? large_ : compiling_, kLargeNice);
}

// nice: priority of the thread below that of the engine and of small requests. (On Linux
// setpriority affects one thread.)
void Api::StartWorker(Lane& lane, int nice) {
    if (!started_.ok()) return;
    started_ = StartThread(lane.threads.emplace_back(), [this, &lane, nice] {
        if (nice != 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);
        Work(lane);
    });
    if (!started_.ok()) lane.threads.pop_back();
}

Api::~Api() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    memory_freed_.notify_all();
    for (Lane* lane : {&small_, &compiling_, &large_}) {
        lane->wake.notify_all();
        for (std::thread& thread : lane->threads) thread.join();
    }
}

bool Api::reading() const {
    const std::lock_guard lock(mutex_);
    return small_.queue.keys() + compiling_.queue.keys() + large_.queue.keys() > 0;
}

Api::Lane& Api::LaneFor(size_t bytes) {
    return bytes <= kSmallBytes ? small_ : large_;
}

void Api::Work(Lane& lane) {
    RunThisThreadOn(options_.cores);
    std::unique_lock lock(mutex_);
    for (;;) {
        lane.wake.wait(lock, [&] { return over_ || lane.queue.ready(); });
        if (over_) return;
        auto [key, work] = lane.queue.Pop();
        lock.unlock();
        // An exception of a library (also bad_alloc) fails one request, not the server; releasing
        // its exchange sends 500.
        try {
            work.run();
        } catch (const std::exception& error) {
            Log(LogLevel::kWarning, "request {} failed: {}", work.id, error.what());
        }
        work = {};
        lock.lock();
        lane.queue.Done(key);
        if (lane.queue.ready()) lane.wake.notify_one();
    }
}

// Returns an error if a request of `key` may not wait. The lock is held. A key may use half of the
// places. When all places are taken, a key below its equal share still gets one; with K keys, at
// most 2 * max_waiting + K requests wait.
std::optional<ApiError> Api::WhyNotQueue(const std::string& key) const {
    const bool keys = options_.keys != nullptr;
    const engine::Engine::Waiting in_engine = served_.engine->waiting(keys ? key : "");
    int64_t all = in_engine.all, own = in_engine.own;
    size_t unread_keys = 0;
    for (const Lane* lane : {&small_, &compiling_, &large_}) {
        all += static_cast<int64_t>(lane->queue.waiting());
        own += static_cast<int64_t>(lane->queue.waiting_of(key));
        unread_keys = std::max(unread_keys, lane->queue.keys());
    }
    const int64_t most = options_.max_waiting, most_own = std::max<int64_t>(1, most / 2);
    const int64_t others = std::max(in_engine.keys, static_cast<int64_t>(unread_keys));
    const int64_t share = keys ? std::max<int64_t>(1, most / (others + 1)) : 0;
    if (keys && own >= most_own) {
        return ApiError{429,
                        fmt::format("{} requests of the key '{}' are waiting; the limit is {} "
                                    "(half of --max-waiting). Try again later.",
                                    own, key, most_own),
                        "", "too_many_waiting"};
    }
    if (all >= most && own >= share) {
        return ApiError{
            429,
            fmt::format(
                "{} requests are waiting; the limit is {} (--max-waiting). Try again later.", all,
                most),
            "", "server_overloaded"};
    }
    return {};
}

// The name under which TaskQueue schedules a request: its key, or without keys its connection.
std::string Api::QueueKeyOf(const Exchange& exchange, const std::string& key) const {
    return options_.keys != nullptr ? key : exchange.request().peer;
}

// Queues a request of `bytes` bytes. It is removed if its client disconnects.
void Api::Post(const std::shared_ptr<Exchange>& exchange, const std::string& key, Lane& lane,
               size_t bytes, std::function<void()> work) {
    const std::string turn = QueueKeyOf(*exchange, key);
    const auto number = std::make_shared<uint64_t>(0);  // task number; guarded by the lock
    const auto remove = [this, &lane, turn, number] {
        std::optional<TaskQueue::Task> left;  // destroyed after the lock is released
        const std::lock_guard lock(mutex_);
        left = lane.queue.Remove(turn, *number);
    };
    exchange->OnDisconnect(remove);  // before the task is queued: the task may set its own callback
    std::optional<ApiError> error;
    {
        const std::lock_guard lock(mutex_);
        error = WhyNotQueue(key);
        if (!error) {
            *number = lane.queue.Push(turn, {exchange->request().id, std::move(work), bytes});
        }
    }
    if (error) return SendError(*exchange, *error);
    lane.wake.notify_one();
    if (exchange->gone()) remove();  // the client disconnected before the push
}

// Reserves memory for the work on a large request, within the budget for requests and answers.
// Waits while other large requests hold too much. Refuses if the budget does not suffice even when
// no other large request runs.
class Api::Room {
  public:
    Room(Api& api, Exchange& exchange, uint64_t bytes) : api_(api) {
        const uint64_t most = api.options_.work_bytes;
        bytes = std::min(bytes, most);
        std::unique_lock lock(api.mutex_);
        api.memory_freed_.wait(lock, [&] {
            const bool alone = api.at_work_bytes_ == 0 || api.over_;
            if (!alone && api.at_work_bytes_ + bytes > most) return false;
            refusal_ = exchange.Reserve(static_cast<size_t>(bytes), false);
            return alone || !refusal_;
        });
        if (refusal_) return;
        bytes_ = bytes;
        api.at_work_bytes_ += bytes_;
    }
    ~Room() {
        const std::lock_guard lock(api_.mutex_);
        api_.at_work_bytes_ -= bytes_;
        api_.memory_freed_.notify_all();
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    const std::optional<Refusal>& refusal() const { return refusal_; }

  private:
    Api& api_;
    uint64_t bytes_ = 0;  // counted in at_work_bytes_
    std::optional<Refusal> refusal_;
};

void Api::Handle(std::shared_ptr<Exchange> exchange) {
    const std::string& method = exchange->request().method;
    const std::string& path = exchange->request().path;
    if (ServePage(*exchange)) return;
    const std::optional<std::string> key = Authenticate(exchange);
    if (!key) return;
    const bool get = method == "GET" || method == "HEAD";
    const std::optional<StoredPath> stored = FindStored(path);
    // the response may be long
    if (stored && (get || (method == "DELETE" && !stored->input_items))) {
        if (responses_->uses_files()) {
            return Post(exchange, *key, large_, 0,
                        [this, exchange, stored] { HandleResponse(*exchange, *stored); });
        }
        const auto held = responses_->Get(OwnerOf(exchange->request()), std::string(stored->id));
        const auto bytes = static_cast<size_t>(held == nullptr ? 0 : held->held_bytes);
        return Post(exchange, *key, LaneFor(bytes / kFormattedPerByteRead),
                    bytes / kFormattedPerByteRead,
                    [this, exchange, stored] { HandleResponse(*exchange, *stored); });
    }
    if (get && HandleGet(exchange, *key)) return;
    if (HandleRoute(exchange, *key)) return;
    const std::string allowed = AllowedMethods(path);
    Headers headers;
    if (!allowed.empty()) headers.emplace_back("Allow", allowed);
    SendError(*exchange, NoSuchRoute(method, path, allowed), std::move(headers));
}

// GET or DELETE of a stored response.
void Api::HandleResponse(Exchange& exchange, const StoredPath& path) {
    const std::string id(path.id);
    const std::string owner = OwnerOf(exchange.request());
    const ApiError unknown{404, fmt::format("Response with id '{}' not found.", id.substr(0, 100)),
                           "", "not_found"};
    if (exchange.request().method == "DELETE") {
        if (!responses_->Remove(owner, id)) return SendError(exchange, unknown);
        const Json gone{{"id", id}, {"object", "response"}, {"deleted", true}};
        return exchange.Send(200, kJsonHeaders, Dump(gone));
    }
    const auto stored = responses_->Get(owner, id);
    if (stored == nullptr) return SendError(exchange, unknown);
    if (!path.input_items && QueryValue(exchange.request().query, "stream") == "true") {
        return SendError(exchange, {400,
                                    "A stored response cannot be streamed. Get it without "
                                    "'stream=true'.",
                                    "stream", "unsupported_value"});
    }
    Json items;
    if (path.input_items) {
        const auto error = InputItems(*stored, exchange.request().query, items);
        if (error) return SendError(exchange, *error);
    }
    Send(exchange, {}, "application/json", Dump(path.input_items ? items : stored->response));
}

// Queues a view of the server's state, whose size grows with the ranks or slots. It goes before
// requests, and no limit on them refuses it, since operators need it most when the server is full.
// (Each connection has at most one.)
void Api::PostView(const std::shared_ptr<Exchange>& exchange, const std::string& key,
                   std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    small_.queue.PushLater(QueueKeyOf(*exchange, key),
                           {exchange->request().id, std::move(work), 0});
    small_.wake.notify_one();
}

bool Api::HandleGet(const std::shared_ptr<Exchange>& exchange, const std::string& key) {
    const std::string& path = exchange->request().path;
    if (path == kLivePath) {
        exchange->Send(200, kJsonHeaders, R"({"status":"alive"})");
    } else if (path == "/health" || path == "/healthz" || path == "/v1/health") {
        Health(*exchange);
    } else if (path == "/ready") {
        Ready(exchange);
    } else if (path == "/v1/models" || path == "/models") {
        exchange->Send(200, kJsonHeaders, Dump(ModelsJson({&served_, 1})));
    } else if (path.starts_with(kModelsBelow)) {
        const std::string name = path.substr(kModelsBelow.size());
        const std::optional<int32_t> adapter = served_.AdapterOf(name);
        if (!adapter) {
            SendError(*exchange, {404, fmt::format("The model '{}' does not exist.", name), "model",
                                  "model_not_found"});
        } else {
            exchange->Send(200, kJsonHeaders, Dump(ModelJson(served_, *adapter)));
        }
    } else if (path == "/metrics" && options_.metrics != nullptr) {
        PostView(exchange, key, [this, exchange] {
            served_.engine->WantReports();
            exchange->Send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                           options_.metrics->Text(served_.engine->stats()));
        });
    } else if (path == "/tokenizer_info") {
        exchange->Send(200, kJsonHeaders, Dump(TokenizerInfoJson(served_)));
    } else if (path == "/slots") {
        PostView(exchange, key, [this, exchange] { ListSlots(*exchange); });
    } else if (path == "/props") {
        exchange->Send(200, kJsonHeaders, Dump(PropsJson(served_)));
    } else if (path == "/api/status") {
        PostView(exchange, key, [this, exchange] {
            exchange->Send(200, kJsonHeaders, Dump(StatusJson(served_, ErrorsFor(*exchange))));
        });
    } else {
        return false;
    }
    return true;
}

bool Api::HandleRoute(const std::shared_ptr<Exchange>& exchange, const std::string& key) {
    const HttpRequest& request = exchange->request();
    const Route* route = FindRoute(request.method, request.path);
    if (route == nullptr) return false;
    if (route->method == "GET") {
        Json answer;
        const auto error = route->reply({}, served_, answer);
        if (error) return Refuse(*exchange, *error), true;
        exchange->Send(200, kJsonHeaders, Dump(answer));
        return true;
    }
    const size_t bytes = request.body.size();
    const bool large = bytes > kSmallBytes;
    std::function<void()> work;
    if (route->plan != nullptr) {
        const CompileEffort effort = large ? CompileEffort::kAll : CompileEffort::kNone;
        work = [this, exchange, plan = route->plan, effort] { Generate(exchange, plan, effort); };
    } else if (route->embed != nullptr) {
        work = [this, exchange, plan = route->embed] { Embed(exchange, plan); };
    } else if (route->reply != nullptr) {
        work = [this, exchange, reply = route->reply] { ReplyTo(exchange, reply); };
    } else {
        work = [this, exchange] { ChangeSlot(exchange); };
    }
    if (large) {
        work = [this, exchange, bytes, work = std::move(work)] {
            const Room room(*this, *exchange, WorkBytes(bytes));
            if (room.refusal()) return SendRefusal(*exchange, *room.refusal());
            work();
        };
    }
    Post(exchange, key, LaneFor(bytes), bytes, std::move(work));
    return true;
}

// Plans the answer again on threads with a larger compile limit.
void Api::Defer(std::shared_ptr<Exchange> exchange, Plan make, CompileEffort effort,
                std::shared_ptr<Admitted> admitted) {
    const bool some = effort == CompileEffort::kNone;
    const std::string key = admitted->key ? admitted->key->name : "";
    const CompileEffort more = some ? CompileEffort::kSome : CompileEffort::kAll;
    Post(exchange, key, some ? compiling_ : large_, exchange->request().body.size(),
         [this, exchange, make, more, admitted = std::move(admitted)] {
             Generate(exchange, make, more, admitted);
         });
}

void Api::Generate(std::shared_ptr<Exchange> exchange, Plan make, CompileEffort effort,
                   std::shared_ptr<Admitted> let_in) {
    if (exchange->gone()) return;
    if (let_in == nullptr) {  // first, because invalid requests are charged too
        let_in = std::make_shared<Admitted>();
        if (!Admit(*exchange, *let_in)) return;
    }
    Admitted& admitted = *let_in;
    Json body;
    AnswerPlan plan;
    plan.effort = effort;
    plan.tenant = admitted.tenant;
    plan.owner = OwnerOf(exchange->request());
    plan.responses = responses_;
    auto error = ParseBody(exchange->request().body, body);
    if (!error) NoteMedia(body, served_.media_as_text);
    if (exchange->gone()) return;
    int64_t slot = -1;
    if (!error) error = ReadSlot(body, slots_->size(), slot);
    if (!error) error = make(body, served_, plan);
    if (plan.deferred) return Defer(std::move(exchange), make, effort, std::move(let_in));
    LogOnce(plan.notices);
    exchange->Release();
    if (error || !plan.reply.empty()) admitted.Settle();
    if (error && plan.stream && plan.dialect && plan.dialect->StreamsRefusal(*error)) {
        if (options_.metrics != nullptr) options_.metrics->AddRefused(error->status);
        NoteError(*exchange, *error);
        return StreamRefusal(*exchange, *plan.dialect, std::move(admitted.headers), *error);
    }
    if (error) return Refuse(*exchange, *error, std::move(admitted.headers));
    if (!plan.reply.empty()) {
        NoteMembers(*exchange, plan.left, admitted.headers);
        return Send(*exchange, std::move(admitted.headers), plan.reply_type, std::move(plan.reply));
    }
    std::optional<Refusal> full;
    if (plan.kept_bytes > 0) full = exchange->Reserve(plan.kept_bytes, true);
    if (full) {
        admitted.Settle();
        return SendRefusal(*exchange, *full, std::move(admitted.headers));
    }
    std::vector<engine::Request*> requests;
    for (ChoicePlan& choice : plan.choices) requests.push_back(&choice.request);
    if (!Charge(*exchange, requests, admitted)) return;
    NoteMembers(*exchange, plan.left, admitted.headers);
    plan.slot = slots_->Begin(plan.owner, slot, *requests[0]);
    plan.dialect->UseSlot(plan.slot->id());
    plan.headers = std::move(admitted.headers);
    Answer::Observer observer = Observe(std::move(admitted.ticket), *requests[0]);
    Answer::Later later = LaterFor(*exchange, admitted);
    Answer::Start(*served_.engine, std::move(exchange), std::move(plan), std::move(observer),
                  std::move(later));
}

void Api::LogOnce(const std::set<std::string>& notices) {
    const std::lock_guard lock(notices_mutex_);
    for (const std::string& notice : notices) {
        if (notices_.size() == kMostNotices || !notices_.insert(notice).second) continue;
        Log(LogLevel::kWarning, "{}", notice);
    }
}

void Api::NoteMembers(Exchange& exchange, const LeftMembers& left, Headers& headers) {
    if (!left.left_out.empty()) headers.emplace_back(kLeftOutHeader, left.left_out);
    exchange.Note([&](RequestNote& note) { note.left_out = left.left_out; });
    LogOnce(left.notices);
}

void Api::Embed(std::shared_ptr<Exchange> exchange, EmbedPlan make) {
    if (exchange->gone()) return;
    Admitted admitted;
    if (!Admit(*exchange, admitted)) return;
    Json body;
    EmbeddingPlan plan;
    auto error = ParseBody(exchange->request().body, body);
    if (!error) error = make(body, served_, plan);
    exchange->Release();
    if (error || !plan.reply.empty()) admitted.Settle();
    if (error) return Refuse(*exchange, *error, std::move(admitted.headers));
    if (!plan.reply.empty()) {
        NoteMembers(*exchange, plan.left, admitted.headers);
        return Send(*exchange, std::move(admitted.headers), "application/json", plan.reply);
    }
    std::vector<engine::Request*> requests;
    for (engine::Request& request : plan.requests) requests.push_back(&request);
    if (!Charge(*exchange, requests, admitted)) return;
    NoteMembers(*exchange, plan.left, admitted.headers);
    plan.headers = std::move(admitted.headers);
    Answer::Later later = LaterFor(*exchange, admitted);
    Answer::Observer observer = Observe(std::move(admitted.ticket), *requests[0]);
    EmbeddingAnswer::Start(served_, std::move(exchange), std::move(plan), std::move(later),
                           std::move(observer));
}

// Runs follow-up work of an admitted request. The limit on requests therefore bounds this queue.
Answer::Later Api::LaterFor(const Exchange& exchange, const Admitted& admitted) {
    return [this, id = exchange.request().id,
            turn = QueueKeyOf(exchange, admitted.key ? admitted.key->name : "")](
               size_t bytes, std::function<void()> work) {
        Lane& lane = LaneFor(bytes / kFormattedPerByteRead);
        const std::lock_guard lock(mutex_);
        lane.queue.PushLater(turn, {id, std::move(work), bytes / kFormattedPerByteRead});
        lane.wake.notify_one();
    };
}

// Returns the callback for the end of a request. A request that was cancelled or refused before it
// computed anything is not charged.
Answer::Observer Api::Observe(std::shared_ptr<Limiter::Ticket> ticket,
                              const engine::Request& request) {
    std::string adapter = request.adapter == 0 ? "" : served_.NameOf(request.adapter);
    return [metrics = options_.metrics, ticket = std::move(ticket),
            adapter = std::move(adapter)](const AnswerRecord& record) {
        if (metrics != nullptr) metrics->Add(record, adapter);
        const int64_t tokens = record.usage.prompt_tokens + record.usage.generated_tokens;
        if (ticket != nullptr && (tokens > 0 || record.error.empty())) ticket->Settle(tokens);
    };
}

void Api::Refuse(Exchange& exchange, const ApiError& error, Headers headers) {
    if (options_.metrics != nullptr) options_.metrics->AddRefused(error.status);
    NoteError(exchange, error);
    headers.emplace_back("Content-Type", "application/json");
    exchange.Send(error.status, std::move(headers), ErrorFor(exchange.request().path, error));
}

// The name of the request's key; "" if no key is required. nullopt: the request was refused.
std::optional<std::string> Api::Authenticate(const std::shared_ptr<Exchange>& exchange) {
    const HttpRequest& request = exchange->request();
    if (options_.keys == nullptr || IsProbe(request.path)) return "";
    const std::string_view key = PresentedKey(request);
    const std::shared_ptr<const KeyRing> ring = options_.keys->ring();
    if (const ApiKey* known = ring->Find(key); known != nullptr) {
        exchange->Note([&](RequestNote& note) { note.key = known->name; });
        return known->name;
    }
    Refuse(*exchange, NoKey(key), {{"WWW-Authenticate", "Bearer"}});
    return {};
}

// Recent errors that the client may see: with keys, only errors of its own key.
std::vector<RequestError> Api::ErrorsFor(const Exchange& exchange) {
    if (options_.log == nullptr) return {};
    std::vector<RequestError> errors = options_.log->errors();
    if (options_.keys == nullptr) return errors;
    const std::shared_ptr<const KeyRing> ring = options_.keys->ring();
    const ApiKey* key = ring->Find(PresentedKey(exchange.request()));
    std::erase_if(errors, [&](const RequestError& error) {
        return key == nullptr || error.key != key->name;
    });
    return errors;
}

// Counts a request toward its key's limits before its body is parsed. Returns false if it refused
// the request.
bool Api::Admit(Exchange& exchange, Admitted& admitted) {
    if (options_.keys == nullptr) return true;
    const std::shared_ptr<const KeyRing> ring = options_.keys->ring();
    const ApiKey* key = ring->Find(PresentedKey(exchange.request()));
    if (key == nullptr) {  // the key was removed meanwhile
        Refuse(exchange, {401, "Incorrect API key provided.", "", "invalid_api_key"});
        return false;
    }
    Limiter::Admission admission = limiter_.Admit(*key, 0);
    if (!admission.ticket) {
        Refuse(exchange, {429, admission.message, "", admission.code}, admission.headers);
        return false;
    }
    admitted.key = *key;
    if (!options_.shared_prefix_cache) admitted.tenant = TenantOf(*key);
    admitted.headers = std::move(admission.headers);
    admitted.ticket = std::make_shared<Limiter::Ticket>(std::move(*admission.ticket));
    return true;
}

// Sets the key's name, tenant, priority and weight in the engine requests and charges their tokens.
// Returns false if it refused them.
bool Api::Charge(Exchange& exchange, std::span<engine::Request* const> requests,
                 Admitted& admitted) {
    if (!admitted.key) return true;
    const ApiKey& key = *admitted.key;
    int64_t tokens = 0;
    for (engine::Request* request : requests) {
        request->key = key.name;
        request->priority = key.limits.priority;
        request->weight = key.limits.weight;
        request->limit = key.limits.concurrent;
        request->tenant = admitted.TenantWith(request->tenant);
        const auto prompt = static_cast<int64_t>(request->prompt.size());
        const int64_t room = std::max<int64_t>(0, served_.engine->context() - prompt);
        const int64_t most = request->max_tokens < 0 ? room : std::min(room, request->max_tokens);
        tokens += prompt + (request->pooling.empty() ? most : 0);
    }
    Limiter::Admission admission = limiter_.Charge(key, *admitted.ticket, tokens);
    if (admission.refused()) {
        admitted.ticket.reset();
        Refuse(exchange, {429, admission.message, "", admission.code}, admission.headers);
        return false;
    }
    admitted.headers = std::move(admission.headers);
    return true;
}

void Api::ReplyTo(std::shared_ptr<Exchange> exchange, Reply reply) {
    if (exchange->gone()) return;
    Admitted admitted;  // charged like others, although the engine is not used
    if (!Admit(*exchange, admitted)) return;
    Headers headers = std::move(admitted.headers);
    Json body, answer;
    auto error = ParseBody(exchange->request().body, body);
    if (!error) NoteMedia(body, served_.media_as_text);
    if (!error) error = reply(body, served_, answer);
    exchange->Release();
    admitted.Settle();
    if (error) return Refuse(*exchange, *error, std::move(headers));
    Send(*exchange, std::move(headers), "application/json", Dump(answer));
}

// Generates one token to check that the cluster works.
class Api::Probe final : public engine::Listener {
  public:
    explicit Probe(Api& api) : api_(api) {}
    void OnToken(const engine::GeneratedToken&, std::string_view) override {}
    void OnEnd(std::string_view, const Result<engine::Ending>& ending) override {
        api_.EndProbe(ending.ok() ? Status() : Status(ending.error()));
    }

  private:
    Api& api_;
};

// As in llama-server and vLLM: whether requests are answered. Also 200 while draining, because
// running requests are still answered.
void Api::Health(Exchange& exchange) {
    const engine::EngineStats stats = served_.engine->stats();
    const auto error = WhyNotServing(stats);
    if (error && stats.state != engine::EngineState::kDraining) return SendError(exchange, *error);
    exchange.Send(200, kJsonHeaders, R"({"status":"ok"})");
}

// Ready: a step finished within ready_ms, or a probe token is generated now. While requests run,
// the current step may take up to twice the longest step so far.
void Api::Ready(std::shared_ptr<Exchange> exchange) {
    engine::EngineStats stats = served_.engine->stats();
    if (leaving_ && stats.state == engine::EngineState::kServing) {
        stats.state = engine::EngineState::kDraining;
    }
    if (const auto error = WhyNotServing(stats)) return SendError(*exchange, *error);
    const double age_s = static_cast<double>(NowNs() - stats.last_step_ns) * 1e-9;
    const double ready_s = static_cast<double>(options_.ready_ms) * 1e-3;
    if (stats.last_step_ns > 0 && age_s < ready_s) {
        return exchange->Send(200, kJsonHeaders, R"({"status":"ready"})");
    }
    const double most_s = 2 * std::max(ready_s, stats.longest_step_s);
    if (stats.last_step_ns > 0 && stats.schedule.running > 0 && age_s > most_s) {
        return SendError(*exchange, {503, fmt::format("No step has finished for {:.0f} s.", age_s),
                                     "", "not_ready"});
    }
    {
        const std::lock_guard lock(probe_mutex_);
        probing_.push_back(std::move(exchange));
        if (probing_.size() > 1) return;
    }
    engine::Request request;
    request.prompt = {0};
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.priority = INT32_MAX;
    request.cached = false;
    if (!served_.engine->generates()) request.pooling = served_.head.poolings;
    const auto id = served_.engine->Submit(std::move(request), std::make_shared<Probe>(*this));
    if (!id.ok()) EndProbe(id.error());
}

void Api::EndProbe(const Status& outcome) {
    std::vector<std::shared_ptr<Exchange>> asked;
    {
        const std::lock_guard lock(probe_mutex_);
        asked.swap(probing_);
    }
    for (const auto& exchange : asked) {
        if (outcome.ok()) {
            exchange->Send(200, kJsonHeaders, R"({"status":"ready"})");
        } else {
            SendError(*exchange, {503, outcome.error().message, "", "not_ready"});
        }
    }
}

}  // namespace weft::serve
