// Server: one model behind HTTP, over a whole cluster: the engine, the API and the HTTP server, put
// together, from the first word to the last answer.
//
//     WEFT_ASSIGN(auto server, Server::Start(options));   // listens, loads, is ready
//     WEFT_TRY(server->Run());                            // until it is told to stop
//
// It listens before it loads, so that a port in use is an error of the first second, and /live is
// 200 and /health 503 while a large model is read.
// Stopping: when *options.interrupted becomes true, no new request is taken in, those that run get
// drain_ms to end, and then the ranks end. While loading it stops at once.
// Thread: the main one (cluster.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/engine.h"
#include "engine/job.h"
#include "model_files/sampling.h"
#include "serve/api/api.h"
#include "serve/http/server.h"
#include "serve/request_log.h"

namespace weft::serve {

struct ServerOptions {
    cluster::ClusterOptions cluster;  // its `stop` is set by the Server
    engine::Job job;
    engine::EngineOptions batch;
    HttpOptions http;
    ApiOptions api;
    std::string name{};                  // the model's name; "": made from its path
    std::vector<std::string> aliases{};  // "gpt-4o": what clients that can't be told ask for
    std::string key_file{};              // API keys; "": none are asked for
    // Embeddings and nothing else: needed with pipeline stages, and leaner without. So it is, too,
    // where the file says how to pool.
    bool embeddings = false;
    std::optional<engine::Pooling> pooling{};  // none: what the file says, or the last token's
    // How tokens are chosen where a request doesn't say it: these; then, where the switch is on,
    // what the model's file says.
    model_files::SamplingHints sampling{};
    bool model_sampling = true;
    std::string metrics_prefix = "weft";
    int64_t drain_ms = 30'000;
    bool log_requests = true;  // a line each, on standard error (request_log.h)
    const std::atomic<bool>* interrupted = nullptr;  // by a signal handler
    std::atomic<bool>* reload = nullptr;             // set, keys and certificates are read again
    std::function<void(const std::string& line)> say{};  // a line for the user
};

class Server {
  public:
    // Errors: kUsage (also: a host that others can reach, without keys), those of HttpServer and
    // Engine.
    static Result<std::unique_ptr<Server>> Start(ServerOptions options);
    ~Server();

    Status Run();
    int port() const { return http_->port(); }
    std::string url() const { return http_->url(); }
    engine::Engine& engine() { return *engine_; }
    // How tokens are chosen where a request doesn't say it, and who says so; empty: as the API has
    // it.
    const std::string& sampling() const { return served_.sampling_by; }
    // Of all ranks, after Run has ended well.
    const std::vector<engine::RankReport>& reports() const { return reports_; }

  private:
    explicit Server(ServerOptions options);
    Status Open();
    Status NameModels();
    void Handle(std::shared_ptr<Exchange> exchange);
    void Watch();
    void Reload();
    Status ReadHints();
    void ChooseOutputs(std::optional<engine::Pooling> said);
    Status ChooseSampling(const model_files::ModelSource& source);
    Status Describe();

    ServerOptions options_;
    std::atomic<bool> force_stop_{false};  // ClusterOptions::stop
    std::atomic<bool> over_{false};
    std::atomic<Api*> ready_{nullptr};  // once requests can be taken
    std::unique_ptr<engine::Engine> engine_;
    std::vector<engine::RankReport> reports_;
    Served served_;
    std::unique_ptr<RequestLog> log_;
    std::unique_ptr<KeyStore> keys_;
    std::unique_ptr<Metrics> metrics_;
    std::unique_ptr<Api> api_;
    std::unique_ptr<HttpServer> http_;
    std::atomic<engine::Engine*> watched_{nullptr};
    std::thread watcher_;
};

// The name of a model by where it is: "llama-3.gguf" and a folder's name without what leads there.
std::string NameOfModel(const std::string& words);
// Whether only this machine can reach a server that listens there.
bool IsLoopback(const std::string& host);

}  // namespace weft::serve
