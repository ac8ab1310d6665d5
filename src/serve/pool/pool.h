// A server of several models: one process per loaded model, started when a request needs it and
// ended when it is idle (schedule.h). This process holds the port. It checks keys, answers all that
// needs no model (lists, probes, metrics, the page), and passes every other request on to the
// process of its model (forward.h). The rates of keys are in memory that all these processes share
// (front.api.rates), and loads count as work of the keys that cause them. The end of a process
// frees all its memory, and the crash of one model does not touch the others.
//
//     POST with "model" in the body, /props and /tokenizer_info with ?model=NAME: that model
//     no name: the first model
//
// A process of a model talks to this one through a socket of packets, each a JSON object:
//     {"state": "listens"}                              answered with "ok"
//     {"state": "serves", "port": 40123}
//     {"state": "failed", "code": 2, "why": "..."}      answered with "again": this process reports
//     it
//
// While a stream of events waits for its model, the client gets a comment per second.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "serve/pool/schedule.h"
#include "serve/server.h"

namespace weft::serve {

// A process that begins to load a model.
struct PoolProcess {
    pid_t pid = -1;
    Fd socket{};
};

struct PoolOptions {
    // The options of the port, keys, stop, log and stored responses. The server ignores its model.
    ServerOptions front;
    std::vector<ServerOptions> models;  // name and job of each model; at least one
    std::vector<MemoryBytes> needs;     // of this machine's memories, by model
    PoolLimits limits;
    int64_t load_ms = 600'000;  // a process that does not serve within this time is killed
    double load_share = 0.5;    // of one key, if there are several (load_budget.h)
    int64_t silence_ms = 5000;  // a loaded process that answers no probe for this time is killed
    PoolSchedule::FreeBytes free_bytes;
    // Starts the process of a model. Called by the thread of Run.
    std::function<Result<PoolProcess>(size_t model)> start;
    // Called once, when the first model has loaded.
    std::function<void(double load_s)> ready{};
};

class PoolServer {
  public:
    // Listens and describes all models; loads none. Errors: those of HttpServer, KeyStore and
    // DescribeUnloaded; kUsage: two models have the same name, a model needs more memory than the
    // limit.
    static Result<std::unique_ptr<PoolServer>> Start(PoolOptions options);
    ~PoolServer();
    PoolServer(const PoolServer&) = delete;
    PoolServer& operator=(const PoolServer&) = delete;

    // Loads the first model and serves until front.interrupted is set and all processes have ended.
    // Errors: the error of the first model, if it cannot be loaded.
    Status Run();
    int port() const;
    std::string url() const;

  private:
    class Impl;
    explicit PoolServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
