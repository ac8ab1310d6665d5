#include "cluster/join/gather.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>

#include "cluster/worker/admission_listener.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostOwnAddresses = 16;
constexpr int64_t kDialMs = 1000;  // per address, if there are several
constexpr int64_t kRedialMs = 50;
constexpr int64_t kTurnMs = 100;

// Why a caller is not a rank of this job; nullopt: it is one.
std::optional<std::string> OfThisJob(const DialHello& hello, int size) {
    if (hello.size == size && hello.rank >= 1 && hello.rank < size) return std::nullopt;
    if (hello.size == 0) {
        return "it is a worker, but this job expects no workers (--expect-workers)";
    }
    return fmt::format("it is rank {} of {}, of another job: this job has {} ranks", hello.rank,
                       hello.size, size);
}

// ---- Other ranks --------------------------------------------------------------------------------

bool AwaitReadable(int fd, const Deadline& deadline) {
    pollfd entry{fd, POLLIN, 0};
    while (!deadline.expired()) {
        const int ready = ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return true;  // recv reports the reason
    }
    return false;
}

Error Ended() {
    return MakeError(ErrorCode::kPeerLost,
                     "rank 0 ended before the job began; its own last line says why");
}

// Reads rank 0's next frame. Rank 0 sends only one until it gets an answer.
Result<Frame> ReadPeerFrame(int fd, Bytes& in, const Deadline& deadline) {
    in.clear();
    std::array<std::byte, kMostBeforeAuth> buffer;
    while (true) {
        if (!AwaitReadable(fd, deadline)) {
            return MakeError(ErrorCode::kTimeout, "rank 0 answers, but began no job within {} ms",
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

Status GatherRanks(int listener, int size, const Bytes& key, RankRegistry& registry,
                   const Gathering& gathering) {
    RendezvousState rendezvous(size, registry, gathering);
    AdmissionListener admission(
        listener, size, key, gathering.timeout_ms, [&](const DialHello& hello, bool proved) {
            // A rank receives the reason after it has proved the key.
            return proved || hello.size == 0 ? OfThisJob(hello, size) : std::nullopt;
        });
    std::vector<std::string> here(static_cast<size_t>(size));  // the ranks that connected
    const Deadline& deadline = gathering.deadline;
    const std::string to = gathering.place.empty() ? "" : " to " + gathering.place;
    while (true) {
        const Result<bool> complete = rendezvous.Complete();
        if (!complete.ok() && complete.error().code == ErrorCode::kCancelled) {
            return MakeError(ErrorCode::kCancelled,
                             "stopped while rank(s) {} of {} had not connected, by the user or by "
                             "the launcher. If one of them failed, its own last line says why",
                             fmt::join(rendezvous.Missing(), ", "), size);
        }
        if (!complete.ok()) return complete.error();
        if (*complete) return {};
        if (deadline.expired()) {
            const std::string& refusal = admission.last_refusal();
            return MakeError(ErrorCode::kTimeout,
                             "rank(s) {} did not connect{} within {} ms. Did the launcher start "
                             "them, each with a rank of its own, and can they reach this host's "
                             "ports?{}",
                             fmt::join(rendezvous.Missing(), ", "), to, deadline.length_ms(),
                             refusal.empty() ? "" : " Turned away: " + refusal);
        }
        rendezvous.Tell([&] {
            return fmt::format("waiting for rank(s) {} of {} to connect{}",
                               fmt::join(rendezvous.Missing(), ", "), size, to);
        });
        WEFT_ASSIGN(auto arrivals, admission.Turn(std::min<int64_t>(deadline.left_ms(), kTurnMs)));
        for (Arrival& arrival : arrivals) {
            const int rank = arrival.rank;
            const std::string who = ArrivalText(arrival);
            if (rendezvous.Has(rank)) {
                registry.Take(std::move(arrival));  // it gets the error, too
                return MakeError(ErrorCode::kUsage,
                                 "two processes are rank {} of {}: {} and {}. Start each process "
                                 "with a rank of its own, from 0 to {}",
                                 rank, size, here[static_cast<size_t>(rank)], who, size - 1);
            }
            here[static_cast<size_t>(rank)] = who;
            rendezvous.Take(std::move(arrival));
        }
    }
}

void TurnRanksAway(int listener, int size, const Deadline& deadline) {
    std::set<int32_t> away;
    AdmissionListener admission(listener, size, {}, 0, [&](const DialHello& hello, bool) {
        std::optional<std::string> why = OfThisJob(hello, size);
        if (why.has_value()) return why;
        away.insert(hello.rank);
        return std::optional(std::string());
    });
    while (away.size() + 1 < static_cast<size_t>(size) && !deadline.expired()) {
        if (!admission.Turn(std::min<int64_t>(deadline.left_ms(), kTurnMs)).ok()) return;
    }
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
    if (last.message.starts_with(net::kNameFault)) {
        return MakeError(last.code, "rank 0: {}", last.message);
    }
    return MakeError(last.code, "rank 0: {} (tried for {} ms). Was it started?", last.message,
                     deadline.length_ms());
}

Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline,
                          const Identity& identity) {
    SetNoDelay(fd.get());
    SetKeepAlive(fd.get());
    DialHello hello{.rank = rank, .size = size};
    ::gethostname(hello.host.data(), hello.host.size() - 1);
    // A new connection accepts these few bytes, or is dead, which the next read shows.
    [[maybe_unused]] ssize_t sent = ::send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    const View prologue = std::as_bytes(std::span(&hello, 1));
    ServerHandshake handshake(key, identity, Bytes(prologue.begin(), prologue.end()));
    Bytes in;
    while (true) {
        WEFT_ASSIGN(const Frame frame, ReadPeerFrame(fd.get(), in, deadline));
        const ServerHandshake::Step step = handshake.On(frame);
        sent = ::send(fd.get(), step.send.data(), step.send.size(), MSG_NOSIGNAL);
        if (!step.refused.empty()) {
            return MakeError(
                ErrorCode::kDenied, "rank 0 was refused: {}. {}", step.refused,
                step.refused == kWrongKey ? "Copy the same --key-file to every host" : kSameBuild);
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
