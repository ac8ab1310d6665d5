// The listening worker: one poll loop over the port, callers that have not proved the key yet, and
// the process's signals. Each job runs in a child process and leaves nothing here.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "base/log.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "cluster/worker/forwards.h"
#include "cluster/worker/job_child.h"
#include "cluster/worker/pending_limit.h"
#include "cluster/worker/waiting_line.h"
#include "hw/cpu.h"
#include "net/addresses.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostSilent = 16;            // callers; beyond: one of them is dropped
constexpr size_t kMostSpeaking = 128;         // the same, for callers that sent a valid hello
constexpr int64_t kHandshakeMs = 2000;        // to prove the key
constexpr uint16_t kLeastForwardPort = 1024;  // data ports must not be ports of system services
constexpr int64_t kRefusalLogMs = 1000;       // at most one log line of refusals in this time

// One connection that has not proved the key.
struct Incoming {
    Fd fd;
    std::string from;
    ServerHandshake handshake;
    std::string network = net::NetworkOf(from);
    Bytes in{};
    Deadline deadline = Deadline::In(kHandshakeMs);
    bool speaks = false;  // sent a valid hello
};

class Listener final : public WorkerListener {
  public:
    Listener(Options options, Bytes key, Fd port, MemoryClaims claims)
        : options_(std::move(options)),
          key_(std::move(key)),
          port_(std::move(port)),
          claims_(std::move(claims)),
          jobs_(static_cast<size_t>(options_.jobs)),
          requests_(jobs_.size()) {}

    int port() const override {
        const auto port = net::BoundPort(port_.get());
        return port.ok() ? *port : 0;
    }
    Status Run() override;

  private:
    Status Serve(const Fd& signals);
    void Accept();
    void DropExcess();
    // Returns false once the caller is done (dropped, or its job runs).
    bool ReadCaller(Incoming& caller);
    bool Step(Incoming& caller, const Frame& frame);
    std::optional<PlaceAnswer> PlaceOf(const PlaceRequest& request, const std::string& from);
    void Begin(Incoming& caller, const PlaceRequest& request);
    void Forward(Incoming& caller, const PlaceRequest& request);
    void CheckJobs();
    size_t FreeSlot() const;  // the number of slots: none is free
    void Refused(const std::string& from, const std::string& why);
    int64_t NapMs() const;

    // (From Open on: a SIGTERM before Run ends the worker like one in Run.)
    BlockedWorkerSignals blocked_;
    Options options_;
    Bytes key_;
    Fd port_;
    MemoryClaims claims_;  // with several jobs
    std::vector<Incoming> callers_;
    std::vector<JobChild> jobs_;          // by slot
    std::vector<PlaceRequest> requests_;  // of these jobs
    WaitingLine line_;
    Forwards forwards_;
    PendingLimit limit_{kMostSilent, kMostSpeaking};
    bool busy_ = false;  // callers still waited after the last Accept
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
    JobChild::End(jobs_, signals);
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
        CheckJobs();
        size_t at = 2;
        std::erase_if(callers_, [&](Incoming& caller) {
            const bool ready = fds[at++].revents != 0 || caller.deadline.expired();
            return ready && !ReadCaller(caller);
        });
        if (fds[1].revents != 0) Accept();
    }
}

int64_t Listener::NapMs() const {
    int64_t nap_ms = jobs_[0].NapMs();
    for (const JobChild& job : jobs_) nap_ms = std::min(nap_ms, job.NapMs());
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
            if (!net::IsExhausted(errno)) return;
            return Refused("a caller", fmt::format("{}. It waits. Raise the limit of open files "
                                                   "('ulimit -n')",
                                                   std::strerror(errno)));
        }
        SetNoDelay(fd.get());
        std::string from = PeerText(fd.get());
        Incoming caller{std::move(fd), std::move(from), ServerHandshake(key_)};
        if (!ReadCaller(caller)) continue;
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

bool Listener::ReadCaller(Incoming& caller) {
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
    PlaceRequest request;
    const ServerHandshake::Step step = caller.handshake.On(frame, [&](const PlaceRequest& asked) {
        request = asked;
        return PlaceOf(asked, caller.from);
    });
    if (step.proved) limit_.ReturnHello(caller.network);
    // A new connection's buffer holds these few bytes; if not, the caller is dropped.
    const auto put =
        ::send(caller.fd.get(), step.send.data(), step.send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!step.refused.empty()) {
        const bool waits = step.busy && (request.ticket != 0 || !request.take);
        if (!waits) Refused(caller.from, step.refused);
        return false;
    }
    if (put != static_cast<ssize_t>(step.send.size())) return false;
    caller.speaks = true;
    if (!step.done) return true;
    Begin(caller, request);
    return false;
}

// ---- Jobs ---------------------------------------------------------------------------------------

size_t Listener::FreeSlot() const {
    return static_cast<size_t>(std::ranges::find_if_not(jobs_, &JobChild::runs) - jobs_.begin());
}

std::optional<PlaceAnswer> Listener::PlaceOf(const PlaceRequest& request, const std::string& from) {
    if (!request.forward.empty()) return std::nullopt;
    const auto free = std::ranges::count_if(jobs_, std::not_fn(&JobChild::runs));
    WaitingLine::Turn turn = line_.Call(request, static_cast<int>(free), NowNs());
    if (turn.taken) return std::nullopt;
    PlaceAnswer& answer = turn.answer;
    if (turn.entered) {
        Log(LogLevel::kInfo, "{} waits, at place {} of {} in line", from, answer.place,
            answer.waiting);
    }
    for (const JobChild& job : jobs_) {
        if (job.runs()) answer.jobs.push_back(job.About().substr(0, kMostAbout));
    }
    answer.places = static_cast<int32_t>(jobs_.size());
    if (options_.neighbors) {
        for (const NeighborWorker& each : options_.neighbors()) {
            if (answer.neighbors.size() == kMostNeighbors) break;
            if (each.name.size() <= kMostHostName) answer.neighbors.push_back(each.name);
        }
    }
    return std::move(answer);
}

void Listener::Forward(Incoming& caller, const PlaceRequest& request) {
    std::vector<std::string> addresses;
    if (options_.neighbors) {
        for (NeighborWorker& each : options_.neighbors()) {
            if (each.name == request.forward) addresses = std::move(each.addresses);
        }
    }
    const std::string who = fmt::format("{} to {}", caller.from, request.forward);
    if (request.forward_port != 0 && request.forward_port < kLeastForwardPort) {
        return Refused(caller.from, fmt::format("it asked for port {} of {}", request.forward_port,
                                                request.forward));
    }
    const Status begun =
        forwards_.Begin(std::move(caller.fd), addresses, request.forward_port, who);
    if (begun.ok()) return Log(LogLevel::kInfo, "forwards {}", who);
    Log(LogLevel::kWarning, "cannot forward {}: {}", who, begun.error().message);
}

void Listener::Begin(Incoming& caller, const PlaceRequest& request) {
    if (!request.forward.empty()) return Forward(caller, request);
    const size_t slot = FreeSlot();
    std::vector<std::string> arguments = options_.worker_arguments;
    if (options_.more_arguments) {
        for (std::string& word : options_.more_arguments()) arguments.push_back(std::move(word));
    }
    if (jobs_.size() > 1) {
        arguments.insert(arguments.end(), {"--claims", claims_.WordOf(slot)});
        claims_.Begin(slot, request.ticket, caller.from);
    }
    requests_[slot] = request;
    const std::vector<int> cores = AllowedCores();
    const size_t parts = std::clamp<size_t>(cores.size(), 1, jobs_.size());
    jobs_[slot].Start(arguments, std::move(caller.fd), caller.handshake.session(), caller.from,
                      PartOfCores(cores, slot % parts, parts));
}

// A killed rank's job may return: its slot is reserved until rank 0 has noticed the loss.
void Listener::CheckJobs() {
    for (size_t slot = 0; slot < jobs_.size(); ++slot) {
        const std::optional<JobChild::Ended> ended = jobs_[slot].Check();
        if (!ended.has_value()) continue;
        if (jobs_.size() > 1) claims_.Clear(slot);
        if (!ended->killed || !requests_[slot].returns) continue;
        const int64_t keep_ms = jobs_[slot].timeout_ms() + kAbsentMs;
        line_.Keep(requests_[slot].ticket, NowNs() + keep_ms * kNsPerMs);
    }
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
    if (options.jobs < 1 || options.jobs > static_cast<int>(kMostJobs)) {
        return MakeError(ErrorCode::kUsage, "--jobs {}: 1 to {}", options.jobs, kMostJobs);
    }
    WEFT_ASSIGN(const Address address, ParseAddress(options.listen));
    WEFT_ASSIGN(Bytes key, ReadKeyFile(options.key_file));
    WEFT_ASSIGN(Fd port, net::ListenTcp(address.host, address.port));
    MemoryClaims claims;
    if (options.jobs > 1) {
        WEFT_ASSIGN(claims, MemoryClaims::Make());
    }
    return std::unique_ptr<WorkerListener>(
        std::make_unique<Listener>(options, std::move(key), std::move(port), std::move(claims)));
}

}  // namespace weft::cluster
