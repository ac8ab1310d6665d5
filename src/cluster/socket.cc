#include "cluster/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

namespace weft::cluster {
namespace {

constexpr int64_t kRedialMs = 50;

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<AddressList> Resolve(const Address& address, bool passive) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
    if (code != 0) {
        return MakeError(ErrorCode::kUsage, "{}: the host is not known here: {}", address.Text(),
                         ::gai_strerror(code));
    }
    return AddressList(found, &::freeaddrinfo);
}

// 0, or the errno of the attempt.
int TryConnect(const addrinfo& to, const Deadline& deadline, Fd* out) {
    Fd fd(::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return errno;
    if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
        if (errno != EINPROGRESS) return errno;
        pollfd entry{fd.get(), POLLOUT, 0};
        int ready = 0;
        do {
            ready = ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
        } while (ready < 0 && errno == EINTR);
        if (ready <= 0) return ETIMEDOUT;
        int error = 0;
        socklen_t size = sizeof error;
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) return error;
    }
    SetNoDelay(fd.get());
    *out = std::move(fd);
    return 0;
}

// A TCP connection to a free port of this host may meet itself; nobody listens there.
bool MetItself(int fd) { return !PeerText(fd).empty() && PeerText(fd) ==
                                Address{LocalHost(fd), std::to_string(LocalPort(fd))}.Text(); }

std::string NumericHost(const sockaddr_storage& address, int* port) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        *port = ntohs(v4.sin_port);
    } else if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
        *port = ntohs(v6.sin6_port);
    }
    return text;
}

}  // namespace

void Fd::Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

std::string Address::Text() const {
    const bool v6 = host.find(':') != std::string::npos;
    return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> ParseAddress(std::string_view text) {
    const size_t colon = text.rfind(':');
    Address address;
    if (colon != std::string_view::npos) {
        std::string_view host = text.substr(0, colon);
        if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
            host = host.substr(1, host.size() - 2);
        } else if (host.find(':') != std::string_view::npos) {
            host = {};
        }
        address = {std::string(host), std::string(text.substr(colon + 1))};
    }
    int port = -1;
    const char* end = address.port.data() + address.port.size();
    const auto parsed = std::from_chars(address.port.data(), end, port);
    const bool good = parsed.ec == std::errc() && parsed.ptr == end && port >= 0 && port <= 65535;
    if (!good || address.host.empty() || address.host.size() > 200) {
        return MakeError(ErrorCode::kUsage,
                         "'{}' is not HOST:PORT (or [IPV6]:PORT), with a port up to 65535", text);
    }
    return address;
}

Result<Fd> ListenOn(const Address& address) {
    WEFT_ASSIGN(AddressList list, Resolve(address, true));
    int error = 0;
    for (const addrinfo* to = list.get(); to != nullptr; to = to->ai_next) {
        Fd fd(::socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const int on = 1;
        if (fd.valid()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd.valid() && ::bind(fd.get(), to->ai_addr, to->ai_addrlen) == 0 &&
            ::listen(fd.get(), 64) == 0) {
            return fd;
        }
        error = errno;
    }
    return MakeError(ErrorCode::kIo, "cannot listen on {}: {}", address.Text(),
                     std::strerror(error));
}

Result<Fd> Dial(const Address& address, const std::string& name, const Deadline& deadline) {
    WEFT_ASSIGN(AddressList list, Resolve(address, false));
    int error = ETIMEDOUT;
    while (!deadline.expired()) {
        for (const addrinfo* to = list.get(); to != nullptr; to = to->ai_next) {
            Fd fd;
            error = TryConnect(*to, deadline, &fd);
            if (error == 0 && !MetItself(fd.get())) return fd;
        }
        const int64_t nap_ms = std::min(kRedialMs, deadline.left_ms());
        std::this_thread::sleep_for(std::chrono::milliseconds(nap_ms));
    }
    if (error == ETIMEDOUT || error == EINPROGRESS) {
        return MakeError(ErrorCode::kTimeout,
                         "{}: no answer within {} ms. Is the host up, and is its port open in the "
                         "firewall?",
                         name, deadline.length_ms());
    }
    return MakeError(ErrorCode::kIo,
                     "{}: {}, tried for {} ms. Is 'weft worker --listen' running there?", name,
                     error == 0 ? "nobody listens" : std::strerror(error), deadline.length_ms());
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

void SetResetOnClose(int fd) {
    const linger reset{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

int LocalPort(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int port = 0;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
        NumericHost(address, &port);
    }
    return port;
}

std::string LocalHost(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int port = 0;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
    return NumericHost(address, &port);
}

std::string PeerText(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int port = 0;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
    const std::string host = NumericHost(address, &port);
    return host.empty() ? "" : Address{host, std::to_string(port)}.Text();
}

}  // namespace weft::cluster
