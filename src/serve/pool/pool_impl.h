// Internal: the state of a PoolServer. Everything but the handler runs on the thread of Run, so
// nothing is locked. Includes Boost.Asio; .cc files only.
#pragma once

#include <utility>  // before Boost 1.74's awaitable.hpp, which lacks it

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "serve/api/routes.h"
#include "serve/api/task_queue.h"
#include "serve/keys.h"
#include "serve/limiter.h"
#include "serve/pool/ask.h"
#include "serve/pool/load_budget.h"
#include "serve/pool/pool.h"
#include "serve/pool/schedule.h"
#include "serve/request_log.h"

namespace weft::serve {

// Completion handler of a coroutine. Rethrows its exception out of Run, so that no part of the
// server stops unnoticed.
inline void Rethrow(const std::exception_ptr& exception) {
    if (exception) std::rethrow_exception(exception);
}

inline int64_t NowMs() {
    return NowNs() / kNsPerMs;
}

// "12 GB of memory", "12 GB of the memory of vulkan:1"
std::string MemoryText(const MemoryBytes::value_type& need);

class PoolServer::Impl {
  public:
    explicit Impl(PoolOptions options);
    ~Impl();
    Status Open();
    Status Run();
    const HttpServer& http() const { return *http_; }

  private:
    using Socket = boost::asio::ip::tcp::socket;
    using Step = PoolSchedule::Step;
    using State = PoolSchedule::State;
    // The request of this server for its first model; clients' requests have ids from 1 on.
    static constexpr uint64_t kFirstLoad = 0;

    // A request that waits for its model, or is forwarded.
    struct Request {
        std::shared_ptr<Exchange> exchange;
        size_t model = 0;
        PoolRequest ask;
        std::string key;  // name of its API key
        std::optional<Limiter::Ticket> ticket{};
        bool begun = false;
        // Times of the arrival, the last comment, and the last event.
        int64_t since_ms = 0, comment_ms = 0, event_ms = 0;
        std::shared_ptr<Socket> socket{};  // while it is forwarded
    };
    // The process of a model.
    struct Process {
        pid_t pid = -1;
        int port = 0;
        int64_t began_ms = 0;
        int64_t kill_ms = INT64_MAX;  // it is killed at this time
        bool served = false;
        std::optional<Error> error{};  // what it reported
    };
    // The keys that have used a loaded model.
    struct Users {
        std::string key;
        bool several = false;
    };
    // The key that pays for the next or the current load of a model, and the load time that was
    // charged to it so far.
    struct LoadCharge {
        std::string key;
        int64_t charged_ms = 0;
    };
    struct Counts {
        uint64_t loads = 0, failures = 0;
        double load_s = 0;
        std::string killed_why{};  // why this server killed the last process; "": it did not
    };

    // pool.cc
    void Handle(std::shared_ptr<Exchange> exchange);
    boost::asio::awaitable<void> Tick();
    void AdvanceStop(int64_t now_ms);
    void Reload();
    void Say(const std::string& line) const;

    // pool_requests.cc
    void Route(const std::shared_ptr<Exchange>& exchange);
    std::optional<std::string> Authenticate(Exchange& exchange);
    void ReadRowRequest(std::shared_ptr<Exchange> exchange, std::string key);
    void ReadNext();
    void Admit(std::shared_ptr<Exchange> exchange, std::string key, PoolRequest ask);
    std::optional<size_t> ModelOf(const std::string& name) const;
    std::optional<ApiError> WhyNotWait(const std::string& key) const;
    bool MayRun(Exchange& exchange, size_t model, Request& request);
    bool CausesLoad(size_t model) const;
    void SettleLoad(size_t model, int64_t load_ms);
    void ForgetLoad(size_t model);
    void Act();
    void Refuse(uint64_t id, size_t model);
    void Begin(uint64_t id);
    void ClientLeft(uint64_t id);
    boost::asio::awaitable<void> RunRequest(uint64_t id);
    void Fail(uint64_t id, const ApiError& error);
    static void FailRequest(Request& request, const ApiError& error);
    static void SendError(Exchange& exchange, const ApiError& error, Headers headers = {});
    void LogWaits(int64_t now_ms);
    std::string WaitText(const Request& request, int64_t now_ms) const;

    // pool_processes.cc
    void Load(size_t model);
    void Unload(size_t model);
    boost::asio::awaitable<void> Watch(size_t model, Fd socket);
    bool IsLoaded(size_t model, pid_t pid) const;
    boost::asio::awaitable<void> Probe(size_t model, pid_t pid);
    void OnChildMessage(size_t model, const std::string& text, int socket);
    void Ended(size_t model, int status);
    void LoadFailed(size_t model, const Error& error);
    void KillLate(int64_t now_ms);

    // pool_lists.cc
    bool AnswerGet(const std::shared_ptr<Exchange>& exchange);
    void AnswerOllama(Exchange& exchange, const serve::Route& route);
    void AnswerReady(Exchange& exchange);
    boost::asio::awaitable<void> AnswerStored(std::shared_ptr<Exchange> exchange, std::string key);
    Json ModelList() const;
    Json RunningList() const;
    boost::asio::awaitable<void> AnswerMetrics(std::shared_ptr<Exchange> exchange);
    boost::asio::awaitable<void> AnswerStatus(std::shared_ptr<Exchange> exchange);
    std::string OwnMetrics() const;

    PoolOptions options_;
    boost::asio::io_context context_{1};
    boost::asio::thread_pool reader_{1};  // reads large bodies, of the keys in turn
    TaskQueue large_;
    bool reads_ = false;  // reader_ is busy
    std::vector<Served> served_;
    PoolSchedule schedule_;
    std::vector<Process> processes_;
    std::vector<Counts> counts_;
    std::vector<Users> users_;                        // by model
    std::vector<std::optional<LoadCharge>> charges_;  // by model
    LoadBudget budget_;
    Limiter limiter_;
    std::map<uint64_t, Request> requests_;
    uint64_t last_id_ = 0;
    std::optional<Error> first_error_;  // why the first model's first load failed
    bool first_loaded_ = false;
    std::unique_ptr<RequestLog> log_;
    std::unique_ptr<KeyStore> keys_;
    int64_t stop_ms_ = 0;     // when the stop began; 0: not yet
    int64_t drained_ms_ = 0;  // end of drain_ms; 0: running requests get no time
    bool refuses_ = false, ends_ = false;
    std::unique_ptr<HttpServer> http_;
};

}  // namespace weft::serve
