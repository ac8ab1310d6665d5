// Inside the server: what all its connections share. Includes Boost.Asio: not for other headers.
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

#include "serve/http/server.h"
#include "serve/http/tls.h"

namespace weft::serve {

class Connection;

// One I/O thread with its connections; everything in it but `context` is that thread's.
struct Loop {
    using Context = boost::asio::io_context;

    Context context{1};
    std::optional<boost::asio::executor_work_guard<Context::executor_type>> work;
    std::vector<char> scratch = std::vector<char>(64 << 10);  // what a socket gives goes in here
    std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
    // Connections whose next request came before the answer to the last one was sent. The loop
    // serves one such request between two looks at its sockets, so that clients with long
    // pipelines wait for each other and other clients wait for one request.
    std::deque<std::shared_ptr<Connection>> turns;
    std::thread thread;
};

// Bytes that each client's requests and unread answers hold. Thread: any.
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
    // Adds them for a request that has `own` already, unless the client would have more than `most`
    // with other requests of it: one alone may be larger.
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
        std::atomic<uint64_t> connections{0}, accepted{0}, turned_away{0}, requests{0}, refused{0},
            timed_out{0}, client_gone{0}, cut_off{0}, tls_failed{0}, received_bytes{0},
            sent_bytes{0}, body_bytes{0};
    };

    HttpOptions options;  // does not change
    Handler handler;
    std::atomic<bool> draining{false}, stopping{false};
    std::atomic<size_t> open_exchanges{0};
    Counters counters;
    BodyShares shares;
    // Has each loop end its slowest readers (Connection::EndIfSlow) until there is room within
    // all_bodies_bytes. Any thread; returns at once.
    std::function<void()> shed{};
    std::atomic<size_t> shedding{0};  // loops that are asked to, and have not done it yet

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
