#include "cluster/gather.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include "base/log.h"
#include "cluster/crowd.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostStrangers = 64;  // beside the ranks; one more drops another
constexpr size_t kMostOwnAddresses = 16;
constexpr int64_t kProofMs = 2000;
constexpr int64_t kDialMs = 1000;  // for one of several addresses
constexpr int64_t kRedialMs = 50;

struct Hello {
    uint32_t magic = 0x57464a31;
    int32_t rank = 0;
    int32_t size = 0;
    uint32_t reserved = 0;
    std::array<char, 64> host{};
};
static_assert(sizeof(Hello) == 80);

// ---- Rank 0 -------------------------------------------------------------------------------------

// A connection that has not proved the key.
struct Caller {
    Fd fd;
    std::string from;
    Deadline deadline = Deadline::In(kProofMs);
    Hello hello{};
    size_t have = 0;  // of the hello
    std::optional<ClientHandshake> handshake{};
    Bytes in{};
};

class Gathering {
  public:
    Gathering(int listener, int size, const Bytes& key, int64_t timeout_ms,
              const std::atomic<bool>* stop)
        : listener_(listener), key_(key), timeout_ms_(timeout_ms), stop_(stop) {
        arrived_.resize(static_cast<size_t>(size) - 1);
    }

    Result<std::vector<Arrival>> Run(const Deadline& deadline);
    // Hangs up on every rank, once all have come or at the deadline.
    void TurnAway(const Deadline& deadline);

  private:
    Status Turn(const Deadline& deadline);
    void Accept();
    void DropACaller();
    // False: done with, whatever the outcome.
    bool Hear(Caller& caller);
    bool HearHello(Caller& caller);
    bool Step(Caller& caller, const Frame& frame);
    bool Drop(const Caller& caller, const std::string& why);
    std::vector<int> Missing() const;

    int listener_;
    const Bytes key_;
    int64_t timeout_ms_;
    const std::atomic<bool>* stop_;
    std::minstd_rand dice_{std::random_device{}()};
    std::vector<Caller> callers_;
    std::vector<std::optional<Arrival>> arrived_;
    bool turns_away_ = false;
    std::set<int32_t> turned_away_;
    std::string last_refusal_;
};

Result<std::vector<Arrival>> Gathering::Run(const Deadline& deadline) {
    while (!Missing().empty()) {
        if (stop_ != nullptr && stop_->load()) {
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        }
        if (deadline.expired()) {
            const std::string why = last_refusal_.empty() ? "" : " Turned away: " + last_refusal_;
            return MakeError(ErrorCode::kTimeout,
                             "rank(s) {} did not come within {} ms. Did the launcher start them, "
                             "and may they reach this host's ports?{}",
                             fmt::join(Missing(), ", "), deadline.length_ms(), why);
        }
        WEFT_TRY(Turn(deadline));
    }
    std::vector<Arrival> arrivals;
    for (std::optional<Arrival>& arrival : arrived_) arrivals.push_back(std::move(*arrival));
    return arrivals;
}

Status Gathering::Turn(const Deadline& deadline) {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
    for (const Caller& caller : callers_) fds.push_back({caller.fd.get(), POLLIN, 0});
    const int64_t nap_ms = std::min<int64_t>(deadline.left_ms(), 200);
    if (::poll(fds.data(), fds.size(), static_cast<int>(nap_ms)) < 0 && errno != EINTR) {
        return MakeError(ErrorCode::kIo, "poll: {}", std::strerror(errno));
    }
    std::erase_if(callers_, [&](Caller& caller) { return !Hear(caller); });
    Accept();
    return {};
}

void Gathering::TurnAway(const Deadline& deadline) {
    turns_away_ = true;
    while (turned_away_.size() < arrived_.size() && !deadline.expired() && Turn(deadline).ok()) {
    }
}

std::vector<int> Gathering::Missing() const {
    std::vector<int> missing;
    for (size_t i = 0; i < arrived_.size(); ++i) {
        if (!arrived_[i].has_value()) missing.push_back(static_cast<int>(i) + 1);
    }
    return missing;
}

// Some at a time, as a listening worker does.
void Gathering::Accept() {
    for (int i = 0; i < kCallersATurn; ++i) {
        Fd fd = net::Accept(listener_);
        if (!fd.valid()) return;
        SetNoDelay(fd.get());
        // All ranks may come at once.
        if (callers_.size() >= kMostStrangers + arrived_.size()) DropACaller();
        std::string from = PeerText(fd.get());
        callers_.push_back({std::move(fd), std::move(from)});
    }
}

void Gathering::DropACaller() {
    std::vector<Unproved> unproved;
    for (const Caller& caller : callers_) {
        unproved.push_back({caller.from, caller.handshake.has_value()});
    }
    const size_t dropped = WhoGoes(unproved, dice_);
    Log(LogLevel::kDebug, "dropped {}: too many unproved connections", callers_[dropped].from);
    SetResetOnClose(callers_[dropped].fd.get());
    callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(dropped));
}

bool Gathering::Drop(const Caller& caller, const std::string& why) {
    last_refusal_ = fmt::format("{}: {}.", caller.from, why);
    Log(LogLevel::kWarning, "turned away {}", last_refusal_);
    return false;
}

bool Gathering::HearHello(Caller& caller) {
    std::byte* at = reinterpret_cast<std::byte*>(&caller.hello) + caller.have;
    const ssize_t got = ::recv(caller.fd.get(), at, sizeof(Hello) - caller.have, MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    caller.have += static_cast<size_t>(got);
    if (caller.have < sizeof(Hello)) return true;
    const Hello& hello = caller.hello;
    if (hello.magic != Hello().magic) return Drop(caller, "it is no rank of weft");
    const auto size = static_cast<int32_t>(arrived_.size()) + 1;
    if (hello.size != size || hello.rank < 1 || hello.rank >= size) {
        return Drop(caller,
                    fmt::format("it is rank {} of {}, of another job", hello.rank, hello.size));
    }
    if (turns_away_) {
        turned_away_.insert(hello.rank);
        return false;
    }
    if (arrived_[static_cast<size_t>(hello.rank) - 1].has_value()) {
        return Drop(caller, fmt::format("rank {} is here already", hello.rank));
    }
    caller.handshake.emplace(fmt::format("rank {}", hello.rank), key_, timeout_ms_);
    const Bytes first = caller.handshake->First();
    return ::send(caller.fd.get(), first.data(), first.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(first.size());
}

bool Gathering::Hear(Caller& caller) {
    if (caller.deadline.expired()) return Drop(caller, "it did not prove the key in time");
    if (!caller.handshake.has_value()) return HearHello(caller);
    // Not a byte beyond the handshake: what follows is for the session.
    std::array<std::byte, kMostBeforeAuth> buffer;
    const ssize_t seen =
        ::recv(caller.fd.get(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0) return errno == EAGAIN || errno == EINTR;
    if (seen == 0) return Drop(caller, "it closed the connection (a wrong key?)");
    const size_t before = caller.in.size();
    caller.in.insert(caller.in.end(), buffer.data(), buffer.data() + seen);
    size_t consumed = 0;
    auto frame = ParseFrame(caller.in, false, &consumed);
    if (!frame.ok()) return Drop(caller, frame.error().message);
    const size_t take = frame->has_value() ? consumed - before : static_cast<size_t>(seen);
    if (::recv(caller.fd.get(), buffer.data(), take, 0) != static_cast<ssize_t>(take)) return false;
    return !frame->has_value() || Step(caller, **frame);
}

bool Gathering::Step(Caller& caller, const Frame& frame) {
    auto next = caller.handshake->On(frame);
    if (!next.ok()) return Drop(caller, next.error().message);
    caller.in.clear();
    if (!caller.handshake->done()) {
        return ::send(caller.fd.get(), next->data(), next->size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
               static_cast<ssize_t>(next->size());
    }
    std::optional<Arrival>& place = arrived_[static_cast<size_t>(caller.hello.rank) - 1];
    if (place.has_value()) return Drop(caller, "its rank is here already");
    const auto& name = caller.hello.host;
    const size_t length = static_cast<size_t>(std::ranges::find(name, '\0') - name.begin());
    place = Arrival{std::move(caller.fd), caller.handshake->session(),
                    std::string(name.data(), length)};
    return false;
}

// ---- The others ---------------------------------------------------------------------------------

bool AwaitReadable(int fd, const Deadline& deadline) {
    pollfd entry{fd, POLLIN, 0};
    while (!deadline.expired()) {
        const int ready = ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return true;  // recv tells
    }
    return false;
}

// A host that goes down without a word is noticed in half a minute.
void SetKeepAlive(int fd) {
    const int on = 1, idle_s = 10, count = 4, interval_s = 5;
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

Error Ended() {
    return MakeError(ErrorCode::kPeerLost,
                     "rank 0 ended before the job began; its own last line says why");
}

// The next frame of rank 0, which says no more than one until it is answered.
Result<Frame> ReadPeerFrame(int fd, Bytes& in, const Deadline& deadline) {
    in.clear();
    std::array<std::byte, kMostBeforeAuth> buffer;
    while (true) {
        if (!AwaitReadable(fd, deadline)) {
            return MakeError(ErrorCode::kTimeout, "rank 0 is there, but began no job within {} ms",
                             deadline.length_ms());
        }
        const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) return Ended();
        in.insert(in.end(), buffer.data(), buffer.data() + got);
        size_t consumed = 0;
        WEFT_ASSIGN(const auto frame, ParseFrame(in, false, &consumed));
        if (frame.has_value()) return *frame;
    }
}

}  // namespace

Result<std::vector<Arrival>> GatherRanks(int listener, int size, const Bytes& key,
                                         int64_t timeout_ms, const Deadline& deadline,
                                         const std::atomic<bool>* stop) {
    return Gathering(listener, size, key, timeout_ms, stop).Run(deadline);
}

void TurnRanksAway(int listener, int size, const Deadline& deadline) {
    Gathering(listener, size, {}, 0, nullptr).TurnAway(deadline);
}

Result<Fd> DialRankZero(const std::vector<Address>& addresses, const Deadline& deadline) {
    Error last{ErrorCode::kIo, "no address"};
    do {
        for (const Address& address : addresses) {
            const int64_t ms = std::min(kDialMs, deadline.left_ms());
            auto fd = net::DialTcp(address.host, address.port, Deadline::In(ms));
            if (fd.ok()) return fd;
            last = fd.error();
        }
        ::usleep(static_cast<useconds_t>(std::min(kRedialMs, deadline.left_ms()) * 1000));
    } while (!deadline.expired());
    return MakeError(last.code, "rank 0: {} (tried for {} ms). Was it started?", last.message,
                     deadline.length_ms());
}

Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline) {
    SetNoDelay(fd.get());
    SetKeepAlive(fd.get());
    Hello hello{.rank = rank, .size = size};
    ::gethostname(hello.host.data(), hello.host.size() - 1);
    // A fresh connection takes these few bytes, or is dead, which reading tells.
    [[maybe_unused]] ssize_t sent = ::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    ServerHandshake handshake(key);
    Bytes in;
    while (true) {
        WEFT_ASSIGN(const Frame frame, ReadPeerFrame(fd.get(), in, deadline));
        const ServerHandshake::Step step = handshake.On(frame, false);
        sent = ::send(fd.get(), step.send.data(), step.send.size(), MSG_NOSIGNAL);
        if (!step.refused.empty()) {
            return MakeError(ErrorCode::kDenied, "rank 0 was refused: {}", step.refused);
        }
        if (step.done) return Arrival{std::move(fd), handshake.session(), ""};
    }
}

std::vector<std::string> OwnAddresses() {
    std::vector<std::string> v4, v6;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0 ||
            (at->ifa_flags & IFF_LOOPBACK) != 0) {
            continue;
        }
        char text[INET6_ADDRSTRLEN] = "";
        if (at->ifa_addr->sa_family == AF_INET) {
            const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
            ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
            v4.emplace_back(text);
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            const auto* address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
            if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
            ::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
            v6.emplace_back(text);
        }
    }
    ::freeifaddrs(list);
    v4.insert(v4.end(), v6.begin(), v6.end());
    if (v4.size() > kMostOwnAddresses) v4.resize(kMostOwnAddresses);
    return v4;
}

}  // namespace weft::cluster
