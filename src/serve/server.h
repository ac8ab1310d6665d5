// Server: serves one model of a cluster over HTTP. It starts the engine, the API and the HTTP
// server, and runs them until shutdown.
//
//     WEFT_ASSIGN(auto server, Server::Start(options));   // listens, loads, is ready
//     WEFT_TRY(server->Run());                            // until it is stopped
//
// It listens before it loads the model: a port in use fails within a second, and during a long load
// /live returns 200 and /health 503.
// Shutdown: when *options.interrupted becomes true, new requests are refused, running requests get
// drain_ms to finish, then the ranks end. During loading it stops at once.
// Thread: the main thread (cluster.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "cluster/cluster.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "model_files/embedding_head.h"
#include "model_files/sampling.h"
#include "serve/api/api.h"
#include "serve/http/server.h"
#include "serve/request_log.h"

namespace weft::serve {

struct ServerOptions {
    cluster::ClusterOptions cluster;  // the Server sets its `stop`
    engine::Job job;
    engine::EngineOptions batch;
    HttpOptions http;
    ApiOptions api;
    std::string name{};  // the model's name; "": made from its path
    // more accepted names, such as "gpt-4o", for clients with a fixed model name
    std::vector<std::string> aliases{};
    // Folder of the stored responses of /v1/responses, within the limits of `api` and up to an age
    // (response_folder.h); "": in memory.
    std::string responses_folder{};
    double max_responses_age_s = 30 * 86'400;
    std::string key_file{};  // API keys; "": no keys are required
    // Serve embeddings only: required with pipeline stages, and uses less memory. Set automatically
    // if the model's file specifies a pooling.
    bool embeddings = false;
    std::optional<model_files::Pooling>
        pooling{};        // nullopt: from the file, or the last token's state
    bool rerank = false;  // score pairs by the logits of "yes" and "no", or by the model's own head
    // Sampling defaults for requests that do not set them. With model_sampling, values that are not
    // set here come from the model's file.
    model_files::SamplingHints sampling{};
    bool model_sampling = true;
    // See Served.
    chat::OrderedJson template_variables = chat::OrderedJson::object();
    int64_t reasoning_budget = -1;
    bool media_as_text = false;
    std::string metrics_prefix = "weft";
    // After a stop request, the server accepts requests for drain_delay_ms, while /ready already
    // fails, so that balancers notice. Running requests then have drain_ms to finish, including the
    // time until their clients have the whole answers.
    int64_t drain_delay_ms = 0, drain_ms = 30'000;
    bool log_requests = true;  // a line per request on standard error (request_log.h)
    const std::atomic<bool>* interrupted = nullptr;  // set by a signal handler
    std::atomic<bool>* reload = nullptr;             // when set, keys and certificates are reloaded
    std::function<void(const std::string& line)> say{};  // prints a line for the user
};

class Server {
  public:
    // Errors: kUsage (also: a public host without keys), and those of HttpServer and Engine.
    static Result<std::unique_ptr<Server>> Start(ServerOptions options);
    ~Server();

    Status Run();
    int port() const { return http_->port(); }
    std::string url() const { return http_->url(); }
    engine::Engine& engine() { return *engine_; }
    // Describes the sampling defaults and their source; empty: the API's built-in defaults.
    const std::string& sampling() const { return served_.sampling_by; }
    // Reports of all ranks, after Run returned without an error.
    const std::vector<engine::RankReport>& reports() const { return reports_; }

  private:
    explicit Server(ServerOptions options);
    Status Open();
    void Handle(std::shared_ptr<Exchange> exchange);
    void Watch();
    void AdvanceStop();
    void Reload();
    void Describe();

    ServerOptions options_;
    std::atomic<bool> force_stop_{false};  // ClusterOptions::stop
    std::atomic<bool> over_{false};
    std::atomic<Api*> ready_{nullptr};  // null until requests can be accepted
    std::unique_ptr<engine::Engine> engine_;
    std::vector<engine::RankReport> reports_;
    Served served_;
    std::unique_ptr<RequestLog> log_;
    std::unique_ptr<KeyStore> keys_;
    std::unique_ptr<Metrics> metrics_;
    std::unique_ptr<Api> api_;
    std::unique_ptr<HttpServer> http_;
    std::atomic<engine::Engine*> watched_{nullptr};
    int64_t stop_ns_ = 0;                 // when the watcher noticed the stop request; 0: not yet
    std::atomic<int64_t> drained_ns_{0};  // end of drain_ms; 0: no stop
    bool refuses_ = false, engine_drains_ = false;
    std::thread watcher_;
};

// A model's default name: the last part of its path, such as "llama-3.gguf".
std::string NameOfModel(const std::string& words);
// Whether a server on `host` is reachable from this machine only.
bool IsLoopback(const std::string& host);
// kUsage: a server on `host` needs keys.
Error NeedsKeys(const std::string& host);

}  // namespace weft::serve
