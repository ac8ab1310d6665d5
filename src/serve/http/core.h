// Inside the server: what all its connections share. Includes Boost.Asio: not for other headers.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <mutex>
#include <optional>
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
    std::thread thread;
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
