#include "cluster/worker/forwards.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"
#include "cluster/socket.h"
#include "net/socket.h"

namespace weft::cluster {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;

// Bytes in transit from one socket to the other.
struct Way {
    int from, to;
    std::array<std::byte, kPieceBytes> bytes{};
    size_t begin = 0, end = 0;

    bool empty() const { return begin == end; }
    // Returns false if one end has closed.
    bool Move(short from_events, short to_events) {
        if (empty() && from_events != 0) {
            const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
            begin = 0;
            end = got > 0 ? static_cast<size_t>(got) : 0;
        } else if (empty() || to_events == 0) {
            return true;
        }
        if (empty()) return true;
        const ssize_t put =
            ::send(to, bytes.data() + begin, end - begin, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (put > 0) begin += static_cast<size_t>(put);
        return true;
    }
};

// Lets the kernel end a connection whose other end has vanished without a word (a cut cable, a host
// without power): after 25 s. A forwarded connection may be idle for hours, so Pass has no
// deadline.
void EndIfVanished(int fd) {
    constexpr int kOn = 1, kIdleSeconds = 10, kIntervalSeconds = 5, kProbes = 3, kMost = 25'000;
    const auto set = [&](int level, int option, const int& value) {
        (void)::setsockopt(fd, level, option, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, kOn);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds);
    set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, kMost);
}

void Pass(int caller, int callee, int cancel) {
    for (const int fd : {caller, callee}) EndIfVanished(fd);
    const auto there = std::make_unique<Way>(Way{caller, callee});
    const auto back = std::make_unique<Way>(Way{callee, caller});
    while (true) {
        const auto events = [](const Way& in, const Way& out) {
            return static_cast<short>((in.empty() ? POLLIN : 0) | (out.empty() ? 0 : POLLOUT));
        };
        pollfd fds[] = {{caller, events(*there, *back), 0},
                        {callee, events(*back, *there), 0},
                        {cancel, POLLIN, 0}};
        if (::poll(fds, 3, -1) < 0 && errno != EINTR) return;
        if (fds[2].revents != 0) return;
        for (const pollfd& end : {fds[0], fds[1]}) {
            if ((end.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0 &&
                (end.revents & POLLIN) == 0) {
                return;
            }
        }
        if (!there->Move(fds[0].revents, fds[1].revents)) return;
        if (!back->Move(fds[1].revents, fds[0].revents)) return;
    }
}

Result<Fd> DialFirst(const std::vector<std::string>& addresses, uint16_t port, int cancel) {
    Error last = MakeError(ErrorCode::kIo, "it has no address");
    for (const std::string& text : addresses) {
        WEFT_ASSIGN(const Address address, ParseAddress(text));
        auto dialled = net::DialTcp(address.host, port == 0 ? address.port : port,
                                    Deadline::In(kForwardDialMs), cancel);
        if (dialled.ok()) return dialled;
        last = dialled.error();
    }
    return last;
}

}  // namespace

Forwards::Forwards() : cancel_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Forwards::~Forwards() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(cancel_.get(), &one, sizeof one);
    for (One& each : all_) each.thread.join();
}

void Forwards::Reap() {
    for (auto each = all_.begin(); each != all_.end();) {
        if (!each->over.load()) {
            ++each;
            continue;
        }
        each->thread.join();
        each = all_.erase(each);
    }
}

Status Forwards::Begin(Fd caller, const std::vector<std::string>& addresses, uint16_t port,
                       const std::string& who) {
    Reap();
    if (addresses.empty()) return MakeError(ErrorCode::kUsage, "no cable leads to that host");
    if (all_.size() >= kMostForwards) {
        return MakeError(ErrorCode::kIo, "{} connections are forwarded already", kMostForwards);
    }
    One& one = all_.emplace_back();
    auto fd = std::make_shared<Fd>(std::move(caller));
    const auto forward = [this, &one, fd, addresses, port, who] {
        const auto callee = DialFirst(addresses, port, cancel_.get());
        if (callee.ok()) {
            SetNoDelay(callee->get());
            Pass(fd->get(), callee->get(), cancel_.get());
        } else {
            Log(LogLevel::kWarning, "cannot forward {}: {}", who, callee.error().message);
        }
        fd->Reset();
        one.over.store(true);
    };
    // (A short try: the listener waits for it.)
    const Status started = StartThread(one.thread, forward, {.wait_ms = 0, .signals = false});
    if (!started.ok()) all_.pop_back();
    return started;
}

}  // namespace weft::cluster
