#include "cluster/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace weft::cluster {
namespace {

constexpr int64_t kRedialMs = 50;

// Returns an empty host for an address that is not IPv4 or IPv6.
Address ToAddress(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        return {text, ntohs(v4.sin_port)};
    }
    if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        std::string_view host = text;
        if (host.starts_with("::ffff:")) host.remove_prefix(7);  // IPv4 on a dual-stack socket
        return {std::string(host), ntohs(v6.sin6_port)};
    }
    return {};
}

Address NameOf(int fd, decltype(::getsockname)* get_name) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
    return ToAddress(address);
}

// A connection to a free local port may connect to itself; no listener is there.
bool MetItself(int fd) {
    return NameOf(fd, ::getsockname).Text() == NameOf(fd, ::getpeername).Text();
}

}  // namespace

std::string Address::Text() const {
    const bool v6 = host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> ParseAddress(std::string_view text) {
    const size_t colon = text.rfind(':');
    std::string_view host = text.substr(0, std::min(colon, text.size()));
    std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
        host = {};
    }
    Address address{std::string(host), 0};
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
    const bool good = parsed.ec == std::errc() && parsed.ptr == port.data() + port.size();
    if (!good || host.empty() || host.size() > 200) {
        return MakeError(ErrorCode::kUsage,
                         "'{}' is not HOST:PORT (or [IPV6]:PORT), with a port up to 65535", text);
    }
    return address;
}

std::string WithWorkerPort(const std::string& text) {
    const std::string numeric = text.substr(0, text.find('%'));  // a scope may follow
    in6_addr v6{};
    if (::inet_pton(AF_INET6, numeric.c_str(), &v6) == 1) {
        return fmt::format("[{}]:{}", text, kWorkerPort);
    }
    const bool bare = !text.empty() && (text.find(':') == text.npos || text.back() == ']');
    return bare ? fmt::format("{}:{}", text, kWorkerPort) : text;
}

bool NapUnless(int cancel, int64_t ms) {
    pollfd watched{cancel, POLLIN, 0};
    return ::poll(&watched, 1, static_cast<int>(std::max<int64_t>(0, ms))) <= 0;
}

Result<Fd> Dial(const Address& address, const std::string& name, const Deadline& deadline,
                int cancel) {
    Error last{ErrorCode::kTimeout, ""};  // if no time remains for one call
    while (!deadline.expired()) {
        auto fd = net::DialTcp(address.host, address.port, deadline, cancel);
        if (fd.ok() && !MetItself(fd->get())) {
            SetNoDelay(fd->get());
            return fd;
        }
        last = fd.ok() ? Error{ErrorCode::kIo, "nobody listens"} : fd.error();
        if (!NapUnless(cancel, std::min(kRedialMs, deadline.left_ms()))) {
            return MakeError(ErrorCode::kCancelled, "{}: the connection attempt was cancelled",
                             name);
        }
    }
    if (last.message.starts_with(net::kNameFault)) {
        return MakeError(last.code, "{}: {}", name, last.message);
    }
    if (last.code == ErrorCode::kTimeout) {
        return MakeError(ErrorCode::kTimeout,
                         "{}: no answer within {} ms. Is the host up, and is its port open in the "
                         "firewall?",
                         name, deadline.length_ms());
    }
    return MakeError(ErrorCode::kIo,
                     "{}: {} (tried for {} ms). Is 'weft worker --listen' running there?", name,
                     last.message, deadline.length_ms());
}

Result<std::pair<Fd, Fd>> MakeSocketPair() {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
        return MakeError(ErrorCode::kIo, "cannot make a socket pair: {}", std::strerror(errno));
    }
    return std::pair(Fd(fds[0]), Fd(fds[1]));
}

void SetNoDelay(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void SetKeepAlive(int fd) {
    const int on = 1, idle_s = 10, count = 4, interval_s = 5;
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

void SetResetOnClose(int fd) {
    const linger reset{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

std::string LocalHost(int fd) {
    return NameOf(fd, ::getsockname).host;
}

std::string PeerHost(int fd) {
    return NameOf(fd, ::getpeername).host;
}

std::string PeerText(int fd) {
    const Address address = NameOf(fd, ::getpeername);
    return address.host.empty() ? "" : address.Text();
}

}  // namespace weft::cluster
