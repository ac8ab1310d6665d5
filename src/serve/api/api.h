// The HTTP API: which path and method is what, and everything between a request and its answer.
//
//     POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings   OpenAI
//     GET, DELETE /v1/responses/ID, GET /v1/responses/ID/input_items
//     GET  /v1/models, /v1/models/NAME
//     POST /v1/messages, /v1/messages/count_tokens                                Anthropic
//     POST /completion, /infill, /tokenize, /detokenize, /apply-template          llama-server
//     GET  /props, /tokenizer_info; /chat/completions and others as with /v1
//     POST /api/chat and its like: ollama.h                                       Ollama
//     GET  /live, /health, /ready, /metrics, /api/status, /
//
// Requests are read, rendered and tokenized on threads of its own (an I/O thread must not wait for
// a tokenizer), in turn by key; how many wait has a bound, for all and for each key. Small requests
// have threads that large ones never use (kSmallBytes). A request whose constraint is not known yet
// goes on to threads that try to compile it in a moment, and from there, where that is not enough,
// to those of large requests.
// Thread: Handle on I/O threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "serve/api/answer.h"
#include "serve/api/embeddings.h"
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
    int64_t max_waiting = 1024;  // requests that may wait, half of them a key's; beyond: 429.
                                 // A request waits until it computes; each answer counts
    int64_t ready_ms = 5000;     // a step at least so often, or a probe: else not ready
    size_t workers = 3;          // threads that read small requests; one fewer, but one at
                                 // least, compiles constraints, and as many read large
                                 // requests. 0: nobody reads any
    std::vector<int> cores;      // on which they run; none: those of who makes the Api
    // Memory for the work on large requests: a request that would go beyond it waits until the
    // others are done, and then has all of it.
    uint64_t work_bytes = uint64_t{192} << 20;
    KeyStore* keys = nullptr;      // who may ask; null: everybody. Outlives the Api
    int64_t max_responses = 1000;  // that are stored; 0: none is
    int64_t max_responses_bytes = int64_t{64} << 20;
    bool shared_prefix_cache = false;  // by all keys; else each has its own, or its group's
    Metrics* metrics = nullptr;        // may be null. Outlives the Api
    const RequestLog* log = nullptr;   // whose errors /api/status shows; as metrics
};

class Api {
  public:
    // `served` outlives this, and this the HttpServer that calls Handle.
    Api(const Served& served, ApiOptions options);
    ~Api();

    void Handle(std::shared_ptr<Exchange> exchange);

  private:
    using Plan = std::optional<ApiError> (*)(const Json&, const Served&, AnswerPlan&);
    using Reply = std::optional<ApiError> (*)(const Json&, const Served&, Json&);
    using EmbedPlan = std::optional<ApiError> (*)(const Json&, const Served&, EmbeddingPlan&);
    struct Admitted;
    void HandleResponse(Exchange& exchange, const StoredPath& path);
    bool HandleGet(const std::shared_ptr<Exchange>& exchange);
    bool HandleRoute(const std::shared_ptr<Exchange>& exchange, const std::string& key);
    void Generate(std::shared_ptr<Exchange> exchange, Plan plan, CompileEffort effort,
                  std::shared_ptr<Admitted> admitted = nullptr);
    void Embed(std::shared_ptr<Exchange> exchange, EmbedPlan plan);
    void ReplyTo(std::shared_ptr<Exchange> exchange, Reply reply);
    class Probe;
    void Health(Exchange& exchange);
    void Ready(std::shared_ptr<Exchange> exchange);
    std::vector<RequestError> ErrorsFor(const Exchange& exchange);
    void EndProbe(const Status& outcome);
    std::optional<std::string> Knows(const std::shared_ptr<Exchange>& exchange);
    class Room;
    bool Admit(Exchange& exchange, Admitted& admitted);
    bool Charge(Exchange& exchange, std::span<engine::Request* const> requests, Admitted& admitted);
    Answer::Observer Observe(std::shared_ptr<Limiter::Ticket> ticket,
                             const engine::Request& request);
    void Refuse(Exchange& exchange, const ApiError& error, Headers headers = {});
    std::optional<ApiError> WhyNotPost(const std::string& key) const;
    std::string TurnOf(const Exchange& exchange, const std::string& key) const;
    Answer::Later LaterFor(const Exchange& exchange, const Admitted& admitted);
    // Tasks of one size, and the threads that do them.
    struct Lane {
        TaskQueue queue;
        std::condition_variable wake;
        std::vector<std::thread> threads;
    };
    void Work(Lane& lane);
    void Post(const std::shared_ptr<Exchange>& exchange, const std::string& key, Lane& lane,
              size_t bytes, std::function<void()> work);
    void PutOff(std::shared_ptr<Exchange> exchange, Plan plan, CompileEffort effort,
                std::shared_ptr<Admitted> admitted);
    Lane& LaneFor(size_t bytes);

    const Served& served_;
    ApiOptions options_;
    Limiter limiter_;
    // (Answers keep it: what they say last is stored.)
    std::shared_ptr<ResponseStore> responses_;
    mutable std::mutex mutex_;  // of queues and over_
    Lane small_, compiling_, large_;
    bool over_ = false;
    std::condition_variable roomier_;  // a large request is done
    uint64_t at_work_bytes_ = 0;       // of large requests, as WorkBytes() estimates them
    std::mutex probe_mutex_;
    std::vector<std::shared_ptr<Exchange>> probing_;  // who waits for the one probe there is
};

}  // namespace weft::serve
