// The listening worker: one poll loop over the port, callers that have not proved the key yet, and
// the process's signals. A job runs in a child process and leaves nothing here.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/handshake.h"
#include "cluster/job_child.h"
#include "cluster/pending_limit.h"
#include "cluster/socket.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostSilent = 16;       // callers; one more drops another
constexpr size_t kMostSpeaking = 128;    // likewise
constexpr int64_t kHandshakeMs = 2000;   // to prove the key
constexpr int64_t kRefusalLogMs = 1000;  // at most one log line of refusals in this time

// One connection that has not proved the key.
struct Incoming {
    Fd fd;
    std::string from;
    ServerHandshake handshake;
    std::string network = NetworkOf(from);
    Bytes in{};
    Deadline deadline = Deadline::In(kHandshakeMs);
    bool speaks = false;  // sent a valid hello
};

class Listener final : public WorkerListener {
  public:
    Listener(Options options, Bytes key, Fd port)
        : options_(std::move(options)), key_(std::move(key)), port_(std::move(port)) {}

    int port() const override {
        const auto port = net::BoundPort(port_.get());
        return port.ok() ? *port : 0;
    }
    Status Run() override;

  private:
    Status Serve(const Fd& signals);
    void Accept();
    void DropExcess();
    // False: the caller is done (dropped, or its job runs).
    bool Hear(Incoming& caller);
    bool Step(Incoming& caller, const Frame& frame);
    void Refused(const std::string& from, const std::string& why);
    int64_t NapMs() const;

    // (From Open on: a SIGTERM before Run ends the worker like one in Run.)
    BlockedWorkerSignals blocked_;
    Options options_;
    Bytes key_;
    Fd port_;
    std::vector<Incoming> callers_;
    JobChild job_;
    PendingLimit limit_{kMostSilent, kMostSpeaking};
    bool busy_ = false;  // the last Accept left callers that wait
    Deadline quiet_ = Deadline::In(0);
    int64_t unlogged_ = 0;
};

Status Listener::Run() {
    const sigset_t set = WorkerSignals();
    const Fd signals(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    const Status status = signals.valid() ? Serve(signals)
                                          : MakeError(ErrorCode::kIo, "cannot make a signalfd: {}",
                                                      std::strerror(errno));
    port_ = Fd();  // (a new caller is refused at once)
    job_.End(signals);
    callers_.clear();
    return status;
}

Status Listener::Serve(const Fd& signals) {
    while (true) {
        std::vector<pollfd> fds = {{signals.get(), POLLIN, 0}, {port_.get(), POLLIN, 0}};
        for (const Incoming& caller : callers_) fds.push_back({caller.fd.get(), POLLIN, 0});
        if (::poll(fds.data(), fds.size(), static_cast<int>(NapMs())) < 0 && errno != EINTR) {
            return MakeError(ErrorCode::kIo, "poll: {}", std::strerror(errno));
        }
        if (TakeSignals(signals)) return {};
        job_.Check();
        size_t at = 2;
        std::erase_if(callers_, [&](Incoming& caller) {
            const bool ready = fds[at++].revents != 0 || caller.deadline.expired();
            return ready && !Hear(caller);
        });
        if (fds[1].revents != 0) Accept();
    }
}

int64_t Listener::NapMs() const {
    int64_t nap_ms = job_.NapMs();
    for (const Incoming& caller : callers_) nap_ms = std::min(nap_ms, caller.deadline.left_ms());
    return nap_ms;
}

// ---- Callers ------------------------------------------------------------------------------------

// Accepts a few at a time, so that many new callers do not delay the present ones. A caller's first
// bytes mostly come with the connection, so they are read before it may be dropped.
void Listener::Accept() {
    for (int i = 0; i < kCallersATurn; ++i) {
        Fd fd = net::Accept(port_.get());
        if (!fd.valid()) {
            busy_ = false;
            return;
        }
        SetNoDelay(fd.get());
        std::string from = PeerText(fd.get());
        Incoming caller{std::move(fd), std::move(from), ServerHandshake(key_)};
        if (!Hear(caller)) continue;
        callers_.push_back(std::move(caller));
        DropExcess();
    }
    busy_ = true;
}

void Listener::DropExcess() {
    std::vector<Unproved> unproved;
    for (const Incoming& caller : callers_) unproved.push_back({caller.network, caller.speaks});
    const std::optional<size_t> dropped = limit_.Excess(unproved);
    if (!dropped.has_value()) return;
    Incoming& caller = callers_[*dropped];
    Refused(caller.from, "too many connections that have not proved the key");
    SetResetOnClose(caller.fd.get());
    callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(*dropped));
}

bool Listener::Hear(Incoming& caller) {
    std::array<std::byte, kMostBeforeAuth> buffer;
    const ssize_t got = ::recv(caller.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (!caller.deadline.expired()) return true;
        Refused(caller.from, fmt::format("it did not prove the key within {} ms", kHandshakeMs));
        return false;
    }
    if (got <= 0) return false;
    caller.in.insert(caller.in.end(), buffer.data(), buffer.data() + got);
    size_t consumed = 0;
    auto frame = ParseFrame(caller.in, false, &consumed);
    if (!frame.ok()) {
        Refused(caller.from, frame.error().message);
        return false;
    }
    if (!frame->has_value()) return true;
    if (consumed != caller.in.size()) {
        Refused(caller.from, "it sent a message out of turn");
        return false;
    }
    const bool keep = Step(caller, **frame);
    caller.in.clear();
    return keep;
}

bool Listener::Step(Incoming& caller, const Frame& frame) {
    if (!caller.speaks && !limit_.TakeHello(caller.network, NowNs(), busy_)) {
        Refused(caller.from, "too many hellos from its network");
        SetResetOnClose(caller.fd.get());
        return false;
    }
    const ServerHandshake::Step step =
        caller.handshake.On(frame, job_.runs(), [this] { return job_.About(); });
    if (step.proved) limit_.ReturnHello(caller.network);
    // A new connection's buffer has room for these few bytes; if not, the caller is dropped.
    const auto put =
        ::send(caller.fd.get(), step.send.data(), step.send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!step.refused.empty()) {
        Refused(caller.from, step.refused);
        return false;
    }
    if (put != static_cast<ssize_t>(step.send.size())) return false;
    caller.speaks = true;
    if (!step.done) return true;
    const Session& session = caller.handshake.session();
    std::vector<std::string> arguments = options_.worker_arguments;
    if (options_.more_arguments) {
        for (std::string& word : options_.more_arguments()) arguments.push_back(std::move(word));
    }
    job_.Start(arguments, std::move(caller.fd), session, caller.from);
    return false;
}

void Listener::Refused(const std::string& from, const std::string& why) {
    if (!quiet_.expired()) {
        ++unlogged_;
        return;
    }
    quiet_ = Deadline::In(kRefusalLogMs);
    const std::string more = unlogged_ > 0 ? fmt::format(" ({} more before)", unlogged_) : "";
    unlogged_ = 0;
    Log(LogLevel::kWarning, "refused {}: {}{}", from, why, more);
}

}  // namespace

Result<std::unique_ptr<WorkerListener>> WorkerListener::Open(const Options& options) {
    if (options.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--listen needs --key-file: without a shared key "
                         "anybody could run jobs here");
    }
    WEFT_ASSIGN(const Address address, ParseAddress(options.listen));
    WEFT_ASSIGN(Bytes key, ReadKeyFile(options.key_file));
    WEFT_ASSIGN(Fd port, net::ListenTcp(address.host, address.port));
    return std::unique_ptr<WorkerListener>(
        std::make_unique<Listener>(options, std::move(key), std::move(port)));
}

}  // namespace weft::cluster
