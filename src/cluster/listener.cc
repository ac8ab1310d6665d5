// The listening worker: one poll loop over the port, the callers that have not proved the key yet,
// and the signals of the process. A job runs in a child process; nothing of it stays here.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/crowd.h"
#include "cluster/handshake.h"
#include "cluster/socket.h"
#include "cluster/spawn.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostCallers = 16;     // whoever calls beyond that drops another
constexpr int64_t kHandshakeMs = 2000;  // to prove the key
constexpr int64_t kLeaveMs = 1000;      // for a job's process to end when it is told to hurry
// For a job's process to end when the worker does: one that trains saves with the others first.
// Less than what systemd gives a service (90 s).
constexpr int64_t kSaveMs = 80'000;
constexpr int64_t kRefusalLogMs = 1000;  // at most one line of refusals in that time

// One connection that has not proved the key.
struct Incoming {
    Fd fd;
    std::string from;
    ServerHandshake handshake;
    Bytes in{};
    Deadline deadline = Deadline::In(kHandshakeMs);
    bool spoke = false;
};

// The child that runs a job.
struct Job {
    pid_t pid = 0;
    int64_t timeout_ms = 0;
    std::optional<Deadline> stopped{};  // while it is stopped: until when that is borne
};

class Listener final : public WorkerListener {
  public:
    Listener(Options options, Bytes key, Fd port)
        : options_(std::move(options)), key_(std::move(key)), port_(std::move(port)) {}
    ~Listener() override { KillJob(); }

    int port() const override {
        const auto port = net::BoundPort(port_.get());
        return port.ok() ? *port : 0;
    }
    Status Run() override;

  private:
    Status Serve(const Fd& signals);
    bool TakeSignals(const Fd& signals);
    void Accept();
    void DropACaller();
    // False: the caller is done with (dropped, or its job runs).
    bool Hear(Incoming& caller);
    bool Step(Incoming& caller, const Frame& frame);
    void StartJob(Incoming& caller);
    void CheckJob();
    void EndJob(const Fd& signals);
    void KillJob();
    void Refused(const std::string& from, const std::string& why);
    int64_t NapMs() const;

    Options options_;
    Bytes key_;
    Fd port_;
    std::vector<Incoming> callers_;
    Job job_;
    std::minstd_rand dice_{std::random_device{}()};
    Deadline quiet_ = Deadline::In(0);
    int64_t unlogged_ = 0;
};

Status Listener::Run() {
    sigset_t set, before;
    ::sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, &before);
    Status status;
    {
        const Fd signals(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
        status = signals.valid() ? Serve(signals)
                                 : MakeError(ErrorCode::kIo, "cannot make a signalfd: {}",
                                             std::strerror(errno));
        port_ = Fd();  // (who calls now is refused at once)
        EndJob(signals);
    }
    callers_.clear();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
        CheckJob();
        std::erase_if(callers_, [&](Incoming& caller) { return !Hear(caller); });
        if (fds[1].revents != 0) Accept();
    }
}

int64_t Listener::NapMs() const {
    int64_t nap_ms = 3'600'000;
    for (const Incoming& caller : callers_) nap_ms = std::min(nap_ms, caller.deadline.left_ms());
    if (job_.stopped.has_value()) nap_ms = std::min(nap_ms, job_.stopped->left_ms());
    return nap_ms;
}

// True: the user asked to end.
bool Listener::TakeSignals(const Fd& signals) {
    signalfd_siginfo info;
    bool end = false;
    while (::read(signals.get(), &info, sizeof info) == sizeof info) {
        end = end || info.ssi_signo != SIGCHLD;
    }
    return end;
}

// ---- Callers ------------------------------------------------------------------------------------

// Some at a time: a crowd at the door keeps nobody from being heard who is in.
void Listener::Accept() {
    for (int i = 0; i < kCallersATurn; ++i) {
        Fd fd(::accept4(port_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd.valid()) return;
        SetNoDelay(fd.get());
        if (callers_.size() >= kMostCallers) DropACaller();
        std::string from = PeerText(fd.get());
        callers_.push_back({std::move(fd), std::move(from), ServerHandshake(key_)});
    }
}

void Listener::DropACaller() {
    std::vector<Unproved> unproved;
    for (const Incoming& caller : callers_) unproved.push_back({caller.from, caller.spoke});
    const size_t dropped = WhoGoes(unproved, dice_);
    Incoming& caller = callers_[dropped];
    Refused(caller.from, "too many unproved connections");
    SetResetOnClose(caller.fd.get());
    callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(dropped));
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
        Refused(caller.from, "it talks out of turn");
        return false;
    }
    const bool keep = Step(caller, **frame);
    caller.in.clear();
    return keep;
}

bool Listener::Step(Incoming& caller, const Frame& frame) {
    const ServerHandshake::Step step = caller.handshake.On(frame, job_.pid != 0);
    // A fresh connection's buffer takes these few bytes; if it does not, the caller is dropped.
    const auto put =
        ::send(caller.fd.get(), step.send.data(), step.send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!step.refused.empty()) {
        Refused(caller.from, step.refused);
        return false;
    }
    if (put != static_cast<ssize_t>(step.send.size())) return false;
    caller.spoke = true;
    if (step.done) StartJob(caller);
    return !step.done;
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

// ---- The job ------------------------------------------------------------------------------------

void Listener::StartJob(Incoming& caller) {
    const Session& session = caller.handshake.session();
    Log(LogLevel::kInfo, "a job of {} begins", caller.from);
    auto pid = SpawnRank(options_.worker_arguments, std::move(caller.fd), session, false);
    if (!pid.ok()) {
        Log(LogLevel::kError, "{}", pid.error().message);
        return;
    }
    job_ = Job{*pid, std::max<int64_t>(session.timeout_ms, 200)};
}

void Listener::CheckJob() {
    if (job_.pid == 0) return;
    int status = 0;
    const pid_t got = ::waitpid(job_.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (got == job_.pid && WIFSTOPPED(status)) {
        job_.stopped = Deadline::In(job_.timeout_ms);
    } else if (got == job_.pid && WIFCONTINUED(status)) {
        job_.stopped.reset();
    } else if (got == job_.pid || (got < 0 && errno == ECHILD)) {
        if (WIFSIGNALED(status)) {
            Log(LogLevel::kWarning, "the job's process was killed by signal {} ({})",
                WTERMSIG(status), ::strsignal(WTERMSIG(status)));
        } else {
            Log(LogLevel::kInfo, "the job ended with status {}; waiting for the next",
                WEXITSTATUS(status));
        }
        job_ = Job{};
        return;
    }
    // By now the others have declared it lost; it would only keep the next job out.
    if (job_.stopped.has_value() && job_.stopped->expired()) {
        ::kill(job_.pid, SIGKILL);
        job_.stopped.reset();
    }
}

// Its rank says goodbye to the others, or saves together with them, and ends. Another signal
// hurries it, and so does that it is stopped.
void Listener::EndJob(const Fd& signals) {
    if (job_.pid == 0) return;
    ::kill(job_.pid, SIGTERM);
    std::string how;
    bool hurried = job_.stopped.has_value();
    Deadline deadline = Deadline::In(hurried ? kLeaveMs : kSaveMs);
    while (!deadline.expired()) {
        if (ReapChild(job_.pid, &how)) {
            job_ = Job{};
            return;
        }
        if (TakeSignals(signals) && !hurried) {
            hurried = true;
            ::kill(job_.pid, SIGTERM);
            deadline = Deadline::In(kLeaveMs);
        }
        ::usleep(2000);
    }
    KillJob();
}

void Listener::KillJob() {
    if (job_.pid == 0) return;
    ::kill(job_.pid, SIGKILL);
    std::string how;
    const Deadline deadline = Deadline::In(1000);
    while (!ReapChild(job_.pid, &how) && !deadline.expired()) ::usleep(500);
    job_ = Job{};
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
