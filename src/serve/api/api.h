// The HTTP API: maps paths and methods to handlers and runs each request from arrival to answer.
//
//     POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings   OpenAI
//     GET, DELETE /v1/responses/ID, GET /v1/responses/ID/input_items
//     GET  /v1/models, /v1/models/NAME
//     POST /v1/messages, /v1/messages/count_tokens                                Anthropic
//     POST /completion, /infill, /tokenize, /detokenize, /apply-template          llama-server
//     GET  /props, /slots, /tokenizer_info; POST /slots/ID
//     /chat/completions and others as with /v1
//     POST /api/chat and others: see ollama.h                                       Ollama
//     GET  /live, /health, /ready, /metrics, /api/status, /
//
// Worker threads parse, render and tokenize requests, because an I/O thread must not wait for a
// tokenizer. The queue is fair by key and bounded, per key and in total. Small requests
// (kSmallBytes) have threads that large ones never use. A request whose constraint is not compiled
// yet moves to threads that compile within a short limit, and past that limit to the threads for
// large requests.
// Thread: I/O threads call Handle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "serve/api/answer.h"
#include "serve/api/llama/slots.h"
#include "serve/api/openai/embeddings.h"
#include "serve/api/routes.h"
#include "serve/api/served.h"
#include "serve/api/task_queue.h"
#include "serve/http/server.h"
#include "serve/keys.h"
#include "serve/limiter.h"
#include "serve/metrics.h"
#include "serve/request_log.h"

namespace weft::serve {

struct ApiOptions {
    // Most requests that wait until the engine starts them, counting each choice; one key may have
    // half of them. Beyond that: 429.
    int64_t max_waiting = 1024;
    int64_t ready_ms = 5000;  // /ready fails unless a step or a probe completes within this time
    // Threads for small requests. max(1, workers - 1) threads compile constraints, and as many
    // handle large requests. 0: no request is read.
    size_t workers = 3;
    std::vector<int> cores;  // cores of these threads; empty: the cores of the creating thread
    // Memory budget for work on large requests. A request that would exceed it waits until it has
    // the whole budget alone.
    uint64_t work_bytes = uint64_t{192} << 20;
    KeyStore* keys = nullptr;      // accepted API keys; null: no key is needed. Outlives the Api
    int64_t max_responses = 1000;  // stored responses; 0: store none
    int64_t max_responses_bytes = int64_t{64} << 20;
    // Replaces the two limits above; null: responses are kept in memory.
    std::shared_ptr<ResponseStore> responses{};
    bool shared_prefix_cache = false;  // all keys share the prefix cache; else one per key or group
    Metrics* metrics = nullptr;        // may be null. Outlives the Api
    std::shared_ptr<RateTable> rates{};  // of the keys; null: rates of this process alone
    const RequestLog* log = nullptr;     // source of the errors in /api/status; lifetime as metrics
};

class Api {
  public:
    // `served` outlives the Api; the Api outlives the HttpServer that calls Handle.
    Api(const Served& served, ApiOptions options);
    ~Api();

    // An error if the system started too few threads.
    const Status& started() const { return started_; }
    void Handle(std::shared_ptr<Exchange> exchange);
    // From now on /ready fails; requests are still accepted. Any thread.
    void Leave() { leaving_ = true; }
    // Whether received requests have not reached the engine yet. Any thread.
    bool reading() const;

  private:
    using Plan = std::optional<ApiError> (*)(const Json&, const Served&, AnswerPlan&);
    using Reply = std::optional<ApiError> (*)(const Json&, const Served&, Json&);
    using EmbedPlan = std::optional<ApiError> (*)(const Json&, const Served&, EmbeddingPlan&);
    // An admitted request with its key and rate-limit ticket.
    struct Admitted {
        std::optional<ApiKey> key{};  // nullopt: no keys are required
        std::string tenant{};         // cache namespace
        Headers headers{};            // headers of the answer
        std::shared_ptr<Limiter::Ticket> ticket{};

        // The cache namespace of a request with this salt, which divides the key's part.
        std::string TenantWith(const std::string& salt) const {
            return !key || salt.empty() ? tenant + salt : tenant + '\0' + salt;
        }
        // For a request that needs no generation: charges no tokens. Called before the answer is
        // sent, because the client's next request may need the ticket's place.
        void Settle() {
            if (ticket != nullptr) ticket->Settle(0);
            ticket.reset();
        }
    };
    void HandleResponse(Exchange& exchange, const StoredPath& path);
    bool HandleGet(const std::shared_ptr<Exchange>& exchange, const std::string& key);
    void PostView(const std::shared_ptr<Exchange>& exchange, const std::string& key,
                  std::function<void()> work);
    bool HandleRoute(const std::shared_ptr<Exchange>& exchange, const std::string& key);
    void Generate(std::shared_ptr<Exchange> exchange, Plan plan, CompileEffort effort,
                  std::shared_ptr<Admitted> admitted = nullptr);
    // Logs the notices that were not logged before.
    void LogOnce(const std::set<std::string>& notices);
    void Embed(std::shared_ptr<Exchange> exchange, EmbedPlan plan);
    void ReplyTo(std::shared_ptr<Exchange> exchange, Reply reply);
    // Slots (api_slots.cc).
    void ListSlots(Exchange& exchange);
    void ChangeSlot(const std::shared_ptr<Exchange>& exchange);
    class SlotPrefill;
    void SaveSlot(const std::shared_ptr<Exchange>& exchange, SlotTable::Text text,
                  engine::SlotRequest slot, Admitted admitted);
    std::string OwnerOf(const HttpRequest& request) const;
    class Probe;
    void Health(Exchange& exchange);
    void Ready(std::shared_ptr<Exchange> exchange);
    std::vector<RequestError> ErrorsFor(const Exchange& exchange);
    void EndProbe(const Status& outcome);
    std::optional<std::string> Authenticate(const std::shared_ptr<Exchange>& exchange);
    class Room;
    bool Admit(Exchange& exchange, Admitted& admitted);
    bool Charge(Exchange& exchange, std::span<engine::Request* const> requests, Admitted& admitted);
    void NoteMembers(Exchange& exchange, const LeftMembers& left, Headers& headers);
    Answer::Observer Observe(std::shared_ptr<Limiter::Ticket> ticket,
                             const engine::Request& request);
    void Refuse(Exchange& exchange, const ApiError& error, Headers headers = {});
    std::optional<ApiError> WhyNotQueue(const std::string& key) const;
    std::string QueueKeyOf(const Exchange& exchange, const std::string& key) const;
    Answer::Later LaterFor(const Exchange& exchange, const Admitted& admitted);
    // A queue of tasks of one size class and its threads.
    struct Lane {
        TaskQueue queue;
        std::condition_variable wake;
        std::vector<std::thread> threads;
    };
    void StartWorker(Lane& lane, int nice);
    void Work(Lane& lane);
    void Post(const std::shared_ptr<Exchange>& exchange, const std::string& key, Lane& lane,
              size_t bytes, std::function<void()> work);
    void Defer(std::shared_ptr<Exchange> exchange, Plan plan, CompileEffort effort,
               std::shared_ptr<Admitted> admitted);
    Lane& LaneFor(size_t bytes);

    const Served& served_;
    ApiOptions options_;
    Limiter limiter_;
    // Shared: answers that outlive the Api still store their responses.
    std::shared_ptr<ResponseStore> responses_;
    const std::shared_ptr<SlotTable> slots_;  // shared for the same reason
    mutable std::mutex mutex_;                // guards the queues and over_
    Lane small_, compiling_, large_;
    bool over_ = false;
    Status started_;
    std::condition_variable memory_freed_;  // signaled when a large request is done
    uint64_t at_work_bytes_ = 0;  // bytes of running large requests, estimated by WorkBytes()
    std::atomic<bool> leaving_{false};
    std::mutex notices_mutex_;
    std::set<std::string> notices_;  // that were logged
    std::mutex probe_mutex_;
    std::vector<std::shared_ptr<Exchange>> probing_;  // exchanges that wait for the running probe
};

}  // namespace weft::serve
