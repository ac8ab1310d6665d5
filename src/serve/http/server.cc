#include "serve/http/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "net/socket.h"
#include "serve/http/connection.h"

namespace weft::serve {
namespace {

using Tcp = boost::asio::ip::tcp;
using BoostError = boost::system::error_code;

constexpr size_t kMostAddresses = 8;   // per host name
constexpr int64_t kLookUpMs = 10'000;  // for the name of --host
constexpr int kWaitForFilesMs = 100;   // wait when no file descriptors are available
constexpr size_t kSpareFiles = 128;    // for the process, besides connections
constexpr size_t kMoreFiles = 16384;   // if the hard limit permits: links to many ranks
constexpr size_t kShareOfNetwork = 4;  // HttpLimits::max_strangers
constexpr int kBacklog = 1024;
constexpr std::chrono::seconds kDrainTurn{2};  // time in which I/O loops close idle connections

// Resolves options.host; accepts "[::1]".
Result<std::vector<Tcp::endpoint>> Resolve(const HttpOptions& options) {
    std::string host = options.host;
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    if (host.empty() || options.port < 0 || options.port > 65535) {
        return MakeError(ErrorCode::kUsage,
                         "--host '{}' --port {}: expected a name or an address of this machine, "
                         "and a port from 0 to 65535",
                         options.host, options.port);
    }
    const auto found =
        net::FindAddresses(host, static_cast<uint16_t>(options.port), Deadline::In(kLookUpMs));
    if (!found.ok()) {
        const Error& error = found.error();
        return MakeError(error.code == ErrorCode::kTimeout ? error.code : ErrorCode::kUsage,
                         "--host {}: {} Use an address or name of this machine ('127.0.0.1' for "
                         "local programs, '0.0.0.0' or '::' for all addresses)",
                         options.host, error.message);
    }
    std::vector<Tcp::endpoint> endpoints;
    for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
        Tcp::endpoint endpoint;
        if (at->ai_addrlen > endpoint.capacity() || endpoints.size() >= kMostAddresses) continue;
        std::memcpy(endpoint.data(), at->ai_addr, at->ai_addrlen);
        endpoint.resize(at->ai_addrlen);
        if (std::ranges::find(endpoints, endpoint) == endpoints.end()) {
            endpoints.push_back(endpoint);
        }
    }
    return endpoints;
}

Error CannotListen(const Tcp::endpoint& endpoint, const BoostError& ec) {
    const std::string where =
        fmt::format(fmt::runtime(endpoint.address().is_v6() ? "[{}]:{}" : "{}:{}"),
                    endpoint.address().to_string(), endpoint.port());
    std::string next = "check the address";
    if (ec == boost::asio::error::address_in_use) {
        next = fmt::format(
            "another program listens on this port ('ss -ltnp sport = :{}' shows it): stop it, or "
            "use another --port",
            endpoint.port());
    } else if (ec == boost::asio::error::access_denied) {
        next = "ports below 1024 require root or CAP_NET_BIND_SERVICE; use another --port";
    } else if (ec.value() == EADDRNOTAVAIL) {
        next =
            "no network interface of this machine has that address: 'ip addr' lists the addresses; "
            "'0.0.0.0' and '::' mean all of them";
    }
    return MakeError(ErrorCode::kIo, "cannot listen on {}: {}; {}", where, ec.message(), next);
}

BoostError Listen(Tcp::acceptor& acceptor, const Tcp::endpoint& endpoint) {
    BoostError ec;
    acceptor.open(endpoint.protocol(), ec);
    if (ec) return ec;
    acceptor.set_option(Tcp::acceptor::reuse_address(true), ec);
    if (endpoint.protocol() == Tcp::v6()) {
        const bool all = endpoint.address().is_unspecified();
        acceptor.set_option(boost::asio::ip::v6_only(!all), ec);
    }
    acceptor.bind(endpoint, ec);
    if (!ec) acceptor.listen(kBacklog, ec);
    return ec;
}

// Raises the limit of open files, for `connections` with `files` files each. Returns the number of
// connections for which the limit suffices.
size_t RaiseFileLimit(size_t connections, size_t files) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
    const rlim_t spare = kSpareFiles + Seats::kSpare * files;
    const rlim_t wanted = connections * files + spare;
    if (limit.rlim_cur >= wanted + kMoreFiles) return connections;
    limit.rlim_cur =
        std::max(limit.rlim_cur, std::min<rlim_t>(wanted + kMoreFiles, limit.rlim_max));
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
        Log(LogLevel::kWarning,
            "the limit of open files is {}, but {} are needed for all connections: raise the limit "
            "('ulimit -Hn', LimitNOFILE= of systemd)",
            limit.rlim_cur, wanted);
    }
    return std::min<size_t>(connections, (std::max(limit.rlim_cur, spare + files) - spare) / files);
}

// Send buffer of a connection. The kernel's default is megabytes, which no limit counts; clients
// that do not read could hold that much each.
constexpr int kUnsentBytes = 128 << 10;

// Socket options. A vanished client machine is detected within a minute.
void SetUp(int fd) {
    const auto set = [&](int level, int name, int value) {
        ::setsockopt(fd, level, name, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

class HttpServer::Impl {
  public:
    Impl(HttpOptions options, Handler handler) {
        core_.options = std::move(options);
        core_.handler = std::move(handler);
        for (int i = 0; i < std::max(1, core_.options.threads); ++i) {
            loops_.push_back(std::make_unique<Loop>());
        }
        core_.shed = [this] {
            if (core_.shedding.exchange(loops_.size()) > 0) return;
            for (const auto& loop : loops_) {
                boost::asio::post(loop->context, [this, &loop = *loop] { Shed(loop); });
            }
        };
    }

    ~Impl() {
        core_.stopping = true;
        core_.keep_alive_over = true;
        core_.draining = true;
        for (const auto& loop : loops_) {  // the first loop accepts for all, so it ends first
            if (!loop->thread.joinable()) continue;
            boost::asio::post(loop->context, [this, &loop] {
                if (loop == loops_.front()) StopAccepting();
                CloseAll(*loop);
                loop->work.reset();
            });
            loop->thread.join();
        }
    }

    Status Start() {
        WEFT_TRY(LoadTls());
        WEFT_ASSIGN(std::vector<Tcp::endpoint> endpoints, Resolve(core_.options));
        WEFT_TRY(ListenOn(endpoints));
        SetSeats();
        for (size_t i = 0; i < acceptors_.size(); ++i) Accept(i);
        for (const auto& loop : loops_) WEFT_TRY(StartLoop(*loop));
        return {};
    }

    Status LoadTls() {
        const HttpOptions& options = core_.options;
        if (options.tls_cert.empty() != options.tls_key.empty()) {
            return MakeError(ErrorCode::kUsage, "TLS requires both --tls-cert and --tls-key");
        }
        if (options.tls_cert.empty()) return {};
        WEFT_ASSIGN(auto tls, TlsContext::Load(options.tls_cert, options.tls_key));
        core_.SetTls(std::move(tls));
        return {};
    }

    void EndKeepAlive() { core_.keep_alive_over = true; }

    void Drain() {
        EndKeepAlive();
        core_.draining = true;
        std::vector<std::future<void>> drained;
        for (const auto& loop : loops_) {
            std::packaged_task<void()> task([&loop = *loop] {
                std::vector<std::shared_ptr<Connection>> all;
                for (const auto& entry : loop.connections) all.push_back(entry.second);
                for (const auto& connection : all) connection->CloseIfIdle();
            });
            drained.push_back(task.get_future());
            boost::asio::post(loop->context, std::move(task));
        }
        // (A loop that is stuck must not delay the deadline of the drain.)
        const auto end = std::chrono::steady_clock::now() + kDrainTurn;
        for (const std::future<void>& loop : drained) loop.wait_until(end);
    }

    HttpStats stats() const {
        const Core::Counters& c = core_.counters;
        return {.connections = c.connections,
                .accepted = c.accepted,
                .turned_away = c.turned_away,
                .displaced = c.displaced,
                .requests = c.requests,
                .refused = c.refused,
                .timed_out = c.timed_out,
                .client_gone = c.client_gone,
                .cut_off = c.cut_off,
                .tls_failed = c.tls_failed,
                .received_bytes = c.received_bytes,
                .sent_bytes = c.sent_bytes,
                .body_bytes = c.body_bytes};
    }
    int port() const { return port_; }
    const Core& core() const { return core_; }

  private:
    // Listens on all usable addresses. With port 0, they share the port of the first one.
    Status ListenOn(std::vector<Tcp::endpoint>& endpoints) {
        std::optional<Error> failed;
        for (Tcp::endpoint& endpoint : endpoints) {
            if (port_ != 0) endpoint.port(static_cast<uint16_t>(port_));
            Tcp::acceptor acceptor(loops_.front()->context);
            const BoostError ec = Listen(acceptor, endpoint);
            if (ec) {
                const bool chosen = core_.options.port != 0;
                if (chosen && ec == boost::asio::error::address_in_use) {
                    return CannotListen(endpoint, ec);
                }
                if (!failed) failed = CannotListen(endpoint, ec);
                continue;
            }
            BoostError ignored;
            port_ = acceptor.local_endpoint(ignored).port();
            acceptors_.push_back(std::move(acceptor));
        }
        if (acceptors_.empty()) {
            return failed.value_or(Error{ErrorCode::kUsage, "--host has no address"});
        }
        return {};
    }

    // Each loop gets an equal share.
    void SetSeats() {
        const HttpOptions& options = core_.options;
        const HttpLimits& limits = options.limits;
        const size_t most = RaiseFileLimit(limits.max_connections, options.files_per_connection);
        const size_t strangers =
            limits.max_strangers > 0 ? limits.max_strangers : most / kShareOfNetwork;
        for (const auto& loop : loops_) {
            loop->seats = Seats(std::max<size_t>(1, most / loops_.size()),
                                std::max<size_t>(1, strangers / loops_.size()));
        }
    }

    Status StartLoop(Loop& loop) {
        loop.work.emplace(loop.context.get_executor());
        // The I/O threads block all signals; other threads wait for them. SIGPIPE, which TLS writes
        // may raise, is ignored.
        const auto run = [&loop] {
            for (bool done = false; !done;) {
                try {
                    loop.context.run();
                    done = true;
                } catch (const std::exception& error) {
                    Log(LogLevel::kError, "HTTP: {}", error.what());
                }
            }
        };
        return StartThread(loop.thread, run, {.signals = false});
    }

    void Accept(size_t index) {
        Loop& loop = *loops_[next_loop_++ % loops_.size()];
        acceptors_[index].async_accept(
            loop.context, [this, index, &loop](const BoostError& ec, Tcp::socket socket) {
                if (core_.stopping) return;
                if (ec) return OnAcceptError(index, ec);
                Enter(loop, std::move(socket));
                Accept(index);
            });
    }

    void OnAcceptError(size_t index, const BoostError& ec) {
        const bool no_files = ec.value() == EMFILE || ec.value() == ENFILE ||
                              ec.value() == ENOBUFS || ec.value() == ENOMEM;
        if (!no_files) return Accept(index);    // failure of this client only
        const bool own = ec.value() == EMFILE;  // not an address of the machine
        if (own && Connection::DisplaceOne(*loops_.front())) return Accept(index);
        if (core_.counters.turned_away++ == 0) {
            Log(LogLevel::kError,
                "a connection was not accepted: {}; raise the limit of open files ('ulimit -n')",
                ec.message());
        }
        auto timer = std::make_shared<boost::asio::steady_timer>(
            loops_.front()->context, std::chrono::milliseconds(kWaitForFilesMs));
        timer->async_wait([this, index, timer](const BoostError&) {
            if (!core_.stopping) Accept(index);
        });
    }

    void Enter(Loop& loop, Tcp::socket socket) {
        ++core_.counters.accepted;
        BoostError ec;
        const Tcp::endpoint peer = socket.remote_endpoint(ec);
        if (ec) return;  // the client disconnected
        SetUp(socket.native_handle());
        auto connection = std::make_shared<Connection>(core_, loop, std::move(socket), peer);
        if (&loop == loops_.front().get()) return connection->Begin();
        boost::asio::post(loop.context,
                          [connection = std::move(connection)] { connection->Begin(); });
    }

    void StopAccepting() {
        BoostError ignored;
        for (Tcp::acceptor& acceptor : acceptors_) acceptor.close(ignored);
    }

    // Closes the slowest readers first, until half of the largest request fits.
    void Shed(Loop& loop) {
        --core_.shedding;
        std::vector<std::pair<int64_t, std::shared_ptr<Connection>>> stalled;
        for (const auto& [self, connection] : loop.connections) {
            if (const auto since_ns = connection->stalled_ns()) {
                stalled.emplace_back(*since_ns, connection);
            }
        }
        std::ranges::sort(stalled, {}, [](const auto& entry) { return entry.first; });
        const HttpLimits& limits = core_.options.limits;
        const uint64_t room = std::min(limits.all_bodies_bytes, limits.body_bytes) / 2;
        for (const auto& [since_ns, connection] : stalled) {
            if (core_.counters.body_bytes + room <= limits.all_bodies_bytes) return;
            connection->EndIfSlow();
        }
    }

    static void CloseAll(Loop& loop) {
        while (!loop.connections.empty()) {
            const std::shared_ptr<Connection> connection = loop.connections.begin()->second;
            connection->Close();
        }
    }

    Core core_;
    std::vector<std::unique_ptr<Loop>> loops_;
    std::vector<Tcp::acceptor> acceptors_;
    size_t next_loop_ = 0;
    int port_ = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options, Handler handler) {
    auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
    WEFT_TRY(impl->Start());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const {
    return impl_->port();
}

std::string HttpServer::url() const {
    const HttpOptions& options = impl_->core().options;
    const bool bare = options.host.find(':') != std::string::npos && options.host[0] != '[';
    return fmt::format("{}://{}{}{}:{}", options.tls_cert.empty() ? "http" : "https",
                       bare ? "[" : "", options.host, bare ? "]" : "", port());
}

void HttpServer::EndKeepAlive() {
    impl_->EndKeepAlive();
}

void HttpServer::Drain() {
    impl_->Drain();
}

size_t HttpServer::open_exchanges() const {
    return impl_->core().open_exchanges;
}

HttpStats HttpServer::stats() const {
    return impl_->stats();
}

Status HttpServer::ReloadTls() {
    return impl_->LoadTls();
}

}  // namespace weft::serve
