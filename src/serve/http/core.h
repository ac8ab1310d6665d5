// Internal: state shared by all connections of a server. Includes Boost.Asio; .cc files only.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "serve/http/seats.h"
#include "serve/http/server.h"
#include "serve/http/tls.h"

namespace weft::serve {

class Connection;

// One I/O thread and its connections. Only `context` may be used by other threads.
struct Loop {
    using Context = boost::asio::io_context;

    Context context{1};
    std::optional<boost::asio::executor_work_guard<Context::executor_type>> work;
    std::vector<char> scratch = std::vector<char>(64 << 10);  // receive buffer for all sockets
    std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
    Seats seats{0, 0};  // set when the server starts
    // Connections that hold a pipelined request, which is one that arrived before the previous
    // answer was sent. Between two polls of its sockets, the loop serves one such request. So a
    // client with many pipelined requests delays any other client by one request at most.
    std::deque<std::shared_ptr<Connection>> turns;
    std::thread thread;
};

// Bytes held per client by requests and unread answers. Thread: any.
class BodyShares {
  public:
    void Add(const std::string& client, size_t bytes) {
        const std::lock_guard lock(mutex_);
        held_[client] += bytes;
    }
    size_t held(const std::string& client) const {
        const std::lock_guard lock(mutex_);
        const auto found = held_.find(client);
        return found == held_.end() ? 0 : found->second;
    }
    // Adds `bytes` for a request that already holds `own` bytes. Returns false, and adds nothing,
    // if the client holds bytes of other requests and its total would exceed `most`. A single
    // request may exceed `most`.
    bool Take(const std::string& client, size_t bytes, size_t own, uint64_t most) {
        const std::lock_guard lock(mutex_);
        size_t& held = held_[client];
        if (held > own && bytes > most - std::min<uint64_t>(most, held)) return false;
        held += bytes;
        return true;
    }
    void Give(const std::string& client, size_t bytes) {
        const std::lock_guard lock(mutex_);
        const auto found = held_.find(client);
        if (found == held_.end()) return;
        found->second -= std::min(found->second, bytes);
        if (found->second == 0) held_.erase(found);
    }

  private:
    mutable std::mutex mutex_;
    std::unordered_map<std::string, size_t> held_;
};

struct Core {
    struct Counters {
        std::atomic<uint64_t> connections{0}, accepted{0}, turned_away{0}, displaced{0},
            requests{0}, refused{0}, timed_out{0}, client_gone{0}, cut_off{0}, tls_failed{0},
            received_bytes{0}, sent_bytes{0}, body_bytes{0};
    };

    HttpOptions options;  // constant after the start
    Handler handler;
    // Set in this order while the server stops; see HttpServer::EndKeepAlive and Drain.
    std::atomic<bool> keep_alive_over{false}, draining{false}, stopping{false};
    std::atomic<size_t> open_exchanges{0};
    Counters counters;
    std::atomic<int64_t> told_displaced_ns{0};  // the last line of the log about `displaced`
    BodyShares shares;
    // Asks each loop to close its slowest readers (Connection::EndIfSlow) until usage is below
    // all_bodies_bytes. Thread: any; returns at once.
    std::function<void()> shed{};
    std::atomic<size_t> shedding{0};  // loops that have received the request and have not finished

    bool over_budget() const { return counters.body_bytes > options.limits.all_bodies_bytes; }

    std::shared_ptr<const TlsContext> tls() const {
        const std::lock_guard lock(tls_mutex_);
        return tls_;
    }
    void SetTls(std::shared_ptr<const TlsContext> tls) {
        const std::lock_guard lock(tls_mutex_);
        tls_.swap(tls);
    }

  private:
    mutable std::mutex tls_mutex_;
    std::shared_ptr<const TlsContext> tls_;
};

}  // namespace weft::serve
