#include "cluster/worker/admission_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "net/addresses.h"

namespace weft::cluster {
namespace {

// Most callers in addition to the ranks. If one more connects, one of them is dropped.
constexpr size_t kMostSilentCallers = 64;
constexpr size_t kMostUnprovenCallers = 128;
constexpr int64_t kProofMs = 2000;
// Repeated rejections of a host for the same reason are logged once in this time.
constexpr int64_t kSameAgainNs = 3'600'000 * kNsPerMs;
constexpr size_t kMostLoggedReasons = 256;

DialHello HelloOf(const std::array<std::byte, sizeof(DialHello)>& bytes) {
    DialHello hello;
    std::memcpy(static_cast<void*>(&hello), bytes.data(), sizeof hello);
    return hello;
}

bool SendNow(int fd, const Bytes& bytes) {
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
}

}  // namespace

std::string DialHello::HostName() const {
    std::string name(host.begin(), std::ranges::find(host, '\0'));
    // The text comes from outside and goes to terminals.
    for (char& letter : name) {
        if (letter < '!' || letter > '~') letter = '?';
    }
    return name;
}

AdmissionListener::AdmissionListener(int listener, int ranks, Bytes key, int64_t timeout_ms,
                                     Judge judge)
    : listener_(listener),
      limit_(kMostSilentCallers + static_cast<size_t>(ranks),
             kMostUnprovenCallers + static_cast<size_t>(ranks)),
      key_(std::move(key)),
      timeout_ms_(timeout_ms),
      judge_(std::move(judge)) {}

Result<std::vector<Arrival>> AdmissionListener::Turn(int64_t nap_ms) {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
    for (const Caller& caller : callers_) fds.push_back({caller.fd.get(), POLLIN, 0});
    if (::poll(fds.data(), fds.size(), static_cast<int>(nap_ms)) < 0 && errno != EINTR) {
        return MakeError(ErrorCode::kIo, "poll: {}", std::strerror(errno));
    }
    size_t at = 1;
    std::erase_if(callers_, [&](Caller& caller) {
        const bool ready = fds[at++].revents != 0 || caller.deadline.expired();
        return ready && !ReadCaller(caller);
    });
    Accept();
    return std::exchange(arrived_, {});
}

// Accepts callers as a listening worker does (listener.cc).
void AdmissionListener::Accept() {
    for (int i = 0; i < kCallersATurn; ++i) {
        Fd fd = net::Accept(listener_);
        if (!fd.valid()) {
            busy_ = false;
            return;
        }
        SetNoDelay(fd.get());
        const std::string from = PeerText(fd.get());
        Caller caller{std::move(fd), from, net::NetworkOf(from), Deadline::In(kProofMs)};
        if (!ReadCaller(caller)) continue;
        callers_.push_back(std::move(caller));
        DropExcess();
    }
    busy_ = true;
}

void AdmissionListener::DropExcess() {
    std::vector<Unproved> unproved;
    for (const Caller& caller : callers_) {
        unproved.push_back({caller.network, caller.handshake.has_value()});
    }
    const std::optional<size_t> dropped = limit_.Excess(unproved);
    if (!dropped.has_value()) return;
    Log(LogLevel::kDebug, "dropped {}: too many connections that have not proved the key",
        callers_[*dropped].from);
    SetResetOnClose(callers_[*dropped].fd.get());
    callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(*dropped));
}

bool AdmissionListener::Drop(const Caller& caller, const std::string& why) {
    last_refusal_ = fmt::format("{}: {}.", caller.from, why);
    const LogLevel level = IsNews(caller.from, why) ? LogLevel::kWarning : LogLevel::kDebug;
    Log(level, "turned away {}", last_refusal_);
    return false;
}

bool AdmissionListener::IsNews(const std::string& from, const std::string& why) {
    const int64_t now = NowNs();
    std::erase_if(logged_reasons_,
                  [&](const auto& told) { return now - told.second > kSameAgainNs; });
    if (logged_reasons_.size() >= kMostLoggedReasons) return false;
    return logged_reasons_.emplace(from.substr(0, from.rfind(':')) + " " + why, now).second;
}

// Tells a caller that proved the key why it is rejected.
void AdmissionListener::SendReason(const Caller& caller, const std::string& why) {
    Session session = caller.handshake->session();
    Bytes frame;
    SealFrame(session, frame, FrameType::kVerdict,
              Encode(VerdictMessage{ErrorCode::kDenied, -1,
                                    fmt::format("rank 0 does not take this {} into its job: {}",
                                                caller.hello.size == 0 ? "worker" : "rank", why),
                                    ""}));
    [[maybe_unused]] const bool sent = SendNow(caller.fd.get(), frame);
}

bool AdmissionListener::LetsIn(const Caller& caller, bool proved) {
    const std::optional<std::string> why = judge_(caller.hello, proved);
    if (!why.has_value()) return true;
    if (proved && !why->empty()) SendReason(caller, *why);
    if (!why->empty()) Drop(caller, proved ? *why : *why + " (before it proved the key)");
    return false;
}

bool AdmissionListener::ReadHello(Caller& caller) {
    const auto rest = std::span(caller.hello_bytes).subspan(caller.have);
    const ssize_t got = ::recv(caller.fd.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    caller.have += static_cast<size_t>(got);
    if (caller.have < sizeof(DialHello)) return true;
    caller.hello = HelloOf(caller.hello_bytes);
    if (caller.hello.magic != DialHello().magic) return Drop(caller, "it is not a weft rank");
    if (!LetsIn(caller, false)) return false;
    if (!limit_.TakeHello(caller.network, NowNs(), busy_)) {
        SetResetOnClose(caller.fd.get());
        return false;
    }
    const std::string name =
        caller.hello.size > 0
            ? fmt::format("rank {} (host {})", caller.hello.rank, caller.hello.HostName())
            : fmt::format("worker {}", caller.hello.HostName());
    const Bytes prologue(caller.hello_bytes.begin(), caller.hello_bytes.end());
    caller.handshake.emplace(name, key_, timeout_ms_, Identity{}, prologue);
    return SendNow(caller.fd.get(), caller.handshake->First());
}

bool AdmissionListener::ReadCaller(Caller& caller) {
    if (caller.deadline.expired()) return Drop(caller, "it did not prove the key in time");
    if (!caller.handshake.has_value()) return ReadHello(caller);
    // Reads no byte beyond the handshake: later bytes belong to the session.
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

bool AdmissionListener::Step(Caller& caller, const Frame& frame) {
    auto next = caller.handshake->On(frame);
    if (!next.ok()) return Drop(caller, next.error().message);
    caller.in.clear();
    if (!caller.handshake->done()) return SendNow(caller.fd.get(), *next);
    limit_.ReturnHello(caller.network);
    if (!LetsIn(caller, true)) return false;
    const std::string warning = caller.handshake->BuildWarning();
    if (!warning.empty() && IsNews(caller.from, warning)) Log(LogLevel::kWarning, "{}", warning);
    arrived_.push_back({std::move(caller.fd), caller.handshake->session(), caller.hello.HostName(),
                        caller.hello.rank, caller.from});
    return false;
}

}  // namespace weft::cluster
