#include "net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"

namespace weft::net {
namespace {

constexpr int kBacklog = 1024;
constexpr int64_t kListenLookUpMs = 30'000;
constexpr int64_t kLookUpMs = 60'000;        // at a time
constexpr int64_t kCancelMs = 20;            // until a cancelled lookup ends
constexpr int64_t kFreshMs = 10'000;         // how long the result of a lookup waits for a caller
constexpr int64_t kNextDialMs = 250;         // until the next address of a name is tried as well
constexpr int64_t kFullQueueMs = 10;         // until a full queue of a unix socket is tried again
constexpr useconds_t kExhaustedUs = 20'000;  // until a caller is accepted with free descriptors

// One name lookup. getaddrinfo has no deadline and queries name servers for up to half a minute, so
// it runs on its own thread, which outlives a caller that stops waiting. The next caller waits for
// the same lookup: a name may take longer than each of several attempts to connect.
struct LookUp {
    std::string host, port;
    addrinfo hints{};
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    int64_t done_ns = 0;
    int error = 0;
    addrinfo* found = nullptr;
    ~LookUp() {
        if (found != nullptr) ::freeaddrinfo(found);
    }

    void Run() {
        addrinfo* list = nullptr;
        const int result =
            ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &list);
        const std::lock_guard lock(mutex);
        error = result;
        found = list;
        done = true;
        done_ns = NowNs();
        changed.notify_all();
    }
};

// The lookups that run, or ended after their callers, by host, port and flags.
struct LookUps {
    std::mutex mutex;
    std::map<std::tuple<std::string, std::string, int>, std::shared_ptr<LookUp>> all;
};

// Never freed, because threads of lookups run until the process ends.
LookUps& Running() {
    static LookUps& running = *new LookUps;
    return running;
}

// Begins the lookup of a name, or finds the one that an earlier caller began.
Result<std::shared_ptr<LookUp>> Begin(const std::shared_ptr<LookUp>& wanted, int64_t wait_ms) {
    LookUps& running = Running();
    const std::lock_guard lock(running.mutex);
    auto& entry = running.all[{wanted->host, wanted->port, wanted->hints.ai_flags}];
    if (entry != nullptr) {
        const std::lock_guard inner(entry->mutex);
        if (!entry->done || NowNs() - entry->done_ns < kFreshMs * kNsPerMs) return entry;
    }
    entry = wanted;
    std::thread asking;
    Status started = StartThread(asking, [wanted] { wanted->Run(); }, {.wait_ms = wait_ms});
    if (!started.ok()) {
        entry.reset();
        return started.error();
    }
    asking.detach();
    return wanted;
}

// The next caller looks the name up again.
void Forget(const std::shared_ptr<LookUp>& look_up) {
    LookUps& running = Running();
    const std::lock_guard lock(running.mutex);
    std::erase_if(running.all, [&](const auto& each) { return each.second == look_up; });
}

// Whether the cancel descriptor is readable: the current wait then ends. -1: never.
bool IsReadable(int cancel) {
    pollfd watched{cancel, POLLIN, 0};
    return cancel >= 0 && ::poll(&watched, 1, 0) > 0;
}

Error Cancelled() {
    return MakeError(ErrorCode::kCancelled, "the call was given up");
}

Result<AddressList> Resolve(const std::string& host, uint16_t port, bool listen,
                            const Deadline& deadline, int cancel) {
    auto look_up = std::make_shared<LookUp>();
    look_up->host = host;
    look_up->port = std::to_string(port);
    look_up->hints.ai_family = AF_UNSPEC;
    look_up->hints.ai_socktype = SOCK_STREAM;
    look_up->hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST | (listen ? AI_PASSIVE : 0);
    look_up->Run();  // a numeric address needs no name server
    const bool is_name = look_up->error == EAI_NONAME;
    if (is_name) {
        look_up->done = false;
        look_up->hints.ai_flags &= ~AI_NUMERICHOST;
        WEFT_ASSIGN(look_up, Begin(look_up, std::min(kThreadMs, deadline.left_ms())));
    }
    std::unique_lock lock(look_up->mutex);
    const auto done = [&] { return look_up->done; };
    while (!done() && !deadline.expired() && !IsReadable(cancel)) {
        const int64_t slice_ms = std::min(cancel < 0 ? kLookUpMs : kCancelMs, deadline.left_ms());
        look_up->changed.wait_for(lock, std::chrono::milliseconds(slice_ms), done);
    }
    if (!done() && IsReadable(cancel)) return Cancelled();
    if (!done()) {
        return MakeError(ErrorCode::kTimeout,
                         "{}{}': no name server answered within {} ms. Is the host name right? A "
                         "numeric address needs none.",
                         kNameFault, host, deadline.length_ms());
    }
    lock.unlock();
    if (is_name) Forget(look_up);
    if (look_up->error != 0) {
        return MakeError(ErrorCode::kIo, "{}{}': {}. Is the host name right?", kNameFault, host,
                         ::gai_strerror(look_up->error));
    }
    return AddressList(look_up, look_up->found);
}

Result<Fd> ListenAt(const addrinfo& at, bool every_address) {
    Fd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return MakeError(ErrorCode::kIo, "socket: {}", std::strerror(errno));
    const int on = 1;
    const int off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (every_address && at.ai_family == AF_INET6) {
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (::bind(fd.get(), at.ai_addr, at.ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0) {
        return MakeError(ErrorCode::kIo, "{}", std::strerror(errno));
    }
    return fd;
}

// One of several attempts to connect. Begins it; `connected` means that it has succeeded already.
Result<Fd> BeginConnect(const addrinfo& at, bool& connected) {
    Fd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return MakeError(ErrorCode::kIo, "socket: {}", std::strerror(errno));
    connected = ::connect(fd.get(), at.ai_addr, at.ai_addrlen) == 0;
    if (!connected && errno != EINPROGRESS && errno != EINTR) {
        return MakeError(ErrorCode::kIo, "{}", std::strerror(errno));
    }
    return fd;
}

// Removes the attempts that have ended from `attempts`. Returns the one that succeeded, if any.
// watched: their results of poll(2).
Fd TakeConnected(std::vector<Fd>& attempts, std::span<const pollfd> watched, Error& last) {
    for (size_t i = 0; i < attempts.size(); ++i) {
        if (watched[i].revents == 0) continue;
        int error = 0;
        socklen_t length = sizeof error;
        ::getsockopt(attempts[i].get(), SOL_SOCKET, SO_ERROR, &error, &length);
        if (error == 0) return std::move(attempts[i]);
        last = MakeError(ErrorCode::kIo, "{}", std::strerror(error));
        attempts[i].Reset();
    }
    std::erase_if(attempts, [](const Fd& fd) { return !fd.valid(); });
    return {};
}

// Connects to the first address that answers (RFC 8305): an attempt that is silent for kNextDialMs
// continues beside the next one, because a firewall may drop the packets of one address only.
Result<Fd> DialFirst(const addrinfo* next, const Deadline& deadline, int cancel) {
    std::vector<Fd> attempts;
    std::vector<pollfd> watched;
    Error last{ErrorCode::kIo, "no address"};
    int64_t next_ns = 0;
    while (next != nullptr || !attempts.empty()) {
        if (next != nullptr && (attempts.empty() || NowNs() >= next_ns)) {
            bool connected = false;
            Result<Fd> fd = BeginConnect(*std::exchange(next, next->ai_next), connected);
            if (fd.ok() && connected) return fd;
            if (fd.ok()) {
                attempts.push_back(*std::move(fd));
            } else {
                last = fd.error();
            }
            next_ns = NowNs() + kNextDialMs * kNsPerMs;
            continue;
        }
        watched.clear();
        for (const Fd& fd : attempts) watched.push_back({fd.get(), POLLOUT, 0});
        watched.push_back({cancel, POLLIN, 0});
        const int64_t next_ms = std::max<int64_t>(1, (next_ns - NowNs()) / kNsPerMs);
        const int64_t most_ms =
            next == nullptr ? deadline.left_ms() : std::min(deadline.left_ms(), next_ms);
        if (::poll(watched.data(), watched.size(), static_cast<int>(most_ms)) < 0) {
            if (errno == EINTR) continue;
            return MakeError(ErrorCode::kIo, "poll failed");
        }
        if (watched.back().revents != 0) return Cancelled();
        Fd connected = TakeConnected(attempts, watched, last);
        if (connected.valid()) return connected;
        if (deadline.expired() && !attempts.empty()) {
            return MakeError(ErrorCode::kTimeout, "no answer within {} ms", deadline.length_ms());
        }
    }
    return last;
}

// An abstract name: a zero byte, then the name.
Result<socklen_t> AbstractAddress(const std::string& name, sockaddr_un& address) {
    if (name.size() + 1 > sizeof address.sun_path) {
        return MakeError(ErrorCode::kUsage, "socket name of {} bytes, expected at most {}",
                         name.size(), sizeof address.sun_path - 1);
    }
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<AddressList> FindAddresses(const std::string& host, uint16_t port,
                                  const Deadline& deadline) {
    return Resolve(host, port, false, deadline, -1);
}

void SetBlocking(int fd, bool blocking) {
    const int flags = ::fcntl(fd, F_GETFL);
    ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

Result<Fd> ListenTcp(const std::string& host, uint16_t port) {
    WEFT_ASSIGN(const AddressList addresses,
                Resolve(host.empty() ? "::" : host, port, true, Deadline::In(kListenLookUpMs), -1));
    std::string last = "no address";
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
        Result<Fd> fd = ListenAt(*at, host.empty());
        if (!fd.ok()) {
            last = fd.error().message;
            continue;
        }
        const std::string taken = BoundHost(fd->get());
        const bool loopback = taken == "::1" || taken.starts_with("127.");  // "localhost" has both
        if (addresses->ai_next != nullptr && !loopback) {
            Log(LogLevel::kWarning,
                "{} has several addresses: this process listens on {} only. Name the address that "
                "other hosts reach, or listen on all: 0.0.0.0 or [::]",
                host, taken);
        }
        return fd;
    }
    if (host.empty()) return ListenTcp("0.0.0.0", port);  // a host without IPv6
    return MakeError(ErrorCode::kIo, "cannot listen on {}:{}: {}", host, port, last);
}

Result<uint16_t> BoundPort(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        return MakeError(ErrorCode::kIo, "getsockname: {}", std::strerror(errno));
    }
    if (address.ss_family == AF_INET6) {
        return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
    }
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string BoundHost(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char text[INET6_ADDRSTRLEN] = "";
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
    if (address.ss_family == AF_INET) {
        ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(address).sin_addr, text, sizeof text);
    } else if (address.ss_family == AF_INET6) {
        ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6&>(address).sin6_addr, text,
                    sizeof text);
    }
    const std::string_view host = text;
    return std::string(host.starts_with("::ffff:") ? host.substr(7) : host);
}

Result<Fd> DialTcp(const std::string& host, uint16_t port, const Deadline& deadline, int cancel) {
    WEFT_ASSIGN(const AddressList addresses, Resolve(host, port, false, deadline, cancel));
    Result<Fd> fd = DialFirst(addresses.get(), deadline, cancel);
    if (fd.ok()) return fd;
    const Error& last = fd.error();
    return MakeError(last.code, "cannot connect to {}:{}: {}", host, port, last.message);
}

Result<Fd> ListenUnix(const std::string& name) {
    sockaddr_un address;
    WEFT_ASSIGN(const socklen_t length, AbstractAddress(name, address));
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(fd.get(), kBacklog) != 0) {
        return MakeError(ErrorCode::kIo, "unix socket @{}: {}", name, std::strerror(errno));
    }
    return fd;
}

Result<Fd> DialUnix(const std::string& name, const Deadline& deadline) {
    sockaddr_un address;
    WEFT_ASSIGN(const socklen_t length, AbstractAddress(name, address));
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    while (!fd.valid() || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
        const bool full = fd.valid() && errno == EAGAIN;  // of net.core.somaxconn callers
        if (!full || deadline.expired()) {
            return MakeError(ErrorCode::kIo, "unix socket @{}: {}", name, std::strerror(errno));
        }
        ::poll(nullptr, 0, kFullQueueMs);
    }
    return fd;
}

Fd Accept(int listener) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && IsExhausted(errno)) {
        const int error = errno;
        ::usleep(kExhaustedUs);
        errno = error;
    }
    return fd;
}

bool IsExhausted(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Status SendWithFd(int socket, std::span<const std::byte> message, int fd) {
    iovec piece{const_cast<std::byte*>(message.data()), message.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(message.size())) {
        return MakeError(ErrorCode::kIo, "unix socket: {}", std::strerror(errno));
    }
    return {};
}

// Space for several descriptors, so that the kernel need not cut the list: all but one are closed.
int RecvWithFd(int socket, std::span<std::byte> message, Fd& fd) {
    iovec piece{message.data(), message.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -1 : 0;
    bool surplus = (header.msg_flags & MSG_CTRUNC) != 0;
    for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
        for (size_t end = CMSG_LEN(sizeof(int)); end <= at->cmsg_len; end += sizeof(int)) {
            int number;
            std::memcpy(&number, reinterpret_cast<char*>(at) + end - sizeof number, sizeof number);
            Fd received(number);
            surplus = surplus || fd.valid();
            if (!fd.valid()) fd = std::move(received);
        }
    }
    return surplus ? 0 : static_cast<int>(got);
}

}  // namespace weft::net
