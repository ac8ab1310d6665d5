// The worker that dials rank 0. A loop: it dials, proves the key, waits with an open connection
// until rank 0 has a job for it (the first bytes of the session), and watches the job's process.
// The end of rank 0 ends the connection, and keep-alives detect a lost host, so the worker never
// waits for a dead one.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "cluster/cluster.h"
#include "cluster/join/gather.h"
#include "cluster/worker/job_child.h"
#include "hw/cpu.h"

namespace weft::cluster {
namespace {

// Pauses between calls without an answer: a leader that returns is found soon, one that is away for
// days gets few calls.
constexpr int64_t kFirstRedialMs = 100;
constexpr int64_t kMostRejoinDialMs = 2000;
constexpr int64_t kLastingRedialMs = 800;
constexpr int64_t kJoinDialMs = 2000;   // to connect
constexpr int64_t kJoinProofMs = 3000;  // for the handshake
// Pauses after a wrong key or version, which time alone does not fix; doubling.
constexpr int64_t kDeniedRedialMs = 5000;
constexpr int64_t kMostDeniedRedialMs = 80'000;
// Pauses after successive jobs that failed soon.
constexpr int64_t kFailedRedialMs = 1000;
constexpr int64_t kMostFailedRedialMs = 5000;
constexpr int64_t kSoonNs = 60'000 * kNsPerMs;

class Joiner final : public WorkerJoiner {
  public:
    Joiner(Options options, Address address, Bytes key)
        : options_(std::move(options)), address_(std::move(address)), key_(std::move(key)) {}
    Result<int> Run() override;

  private:
    Result<int> Serve(const Fd& signals);
    // Returns false if the user requested the end.
    bool Nap(const Fd& signals, int fd, int64_t ms) const;
    Status Call();
    Error NoJob(const std::string& why) const;
    void LogEachOnce(LogLevel level, const std::string& text);
    int64_t PauseAfter(int status);

    Options options_;
    Address address_;
    Bytes key_;
    std::optional<Arrival> held_;  // proved; rank 0 has not begun its job
    JobChild job_;
    Deadline idle_ = Deadline::In(0);
    std::string last_logged_;
    int64_t began_ns_ = 0;  // start of the last job
    int failed_ = 0;        // successive jobs that failed soon
};

Result<int> Joiner::Run() {
    const BlockedWorkerSignals blocked;
    const sigset_t set = WorkerSignals();
    const Fd signals(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    Result<int> status = 0;
    if (signals.valid()) {
        status = Serve(signals);
    } else {
        status = MakeError(ErrorCode::kIo, "cannot make a signalfd: {}", std::strerror(errno));
    }
    held_.reset();  // (rank 0 need not wait for a worker that ends)
    JobChild::End({&job_, 1}, signals);
    return status;
}

void Joiner::LogEachOnce(LogLevel level, const std::string& text) {
    if (text == last_logged_) return;
    last_logged_ = text;
    Log(level, "{}", text);
}

// Sleeps until a signal, bytes at `fd` (-1: none), or the time.
bool Joiner::Nap(const Fd& signals, int fd, int64_t ms) const {
    pollfd entries[] = {{signals.get(), POLLIN, 0}, {fd, POLLIN | POLLRDHUP, 0}};
    ::poll(entries, 2, static_cast<int>(std::max<int64_t>(0, ms)));
    return !TakeSignals(signals);
}

// Pause after a job, by its status. A rank 0 that can't use this worker would end a new job at
// once.
int64_t Joiner::PauseAfter(int status) {
    const bool soon = NowNs() - began_ns_ < kSoonNs;
    failed_ = status != 0 && soon ? std::min(failed_ + 1, 8) : 0;
    if (failed_ < 2) return 0;
    return std::min(kFailedRedialMs << (failed_ - 2), kMostFailedRedialMs);
}

// Calls rank 0 once, up to the end of the handshake.
Status Joiner::Call() {
    WEFT_ASSIGN(Fd fd, net::DialTcp(address_.host, address_.port, Deadline::In(kJoinDialMs)));
    WEFT_ASSIGN(held_,
                ProveRank(std::move(fd), options_.rank, 0, key_, Deadline::In(kJoinProofMs)));
    return {};
}

Error Joiner::NoJob(const std::string& why) const {
    return MakeError(ErrorCode::kTimeout, "{} had no job within {} (--wait): {}", address_.Text(),
                     SecondsText(options_.wait_ms), why);
}

Result<int> Joiner::Serve(const Fd& signals) {
    const std::string leader = address_.Text();
    const int64_t patience_ms = options_.wait_ms > 0 ? options_.wait_ms : kMostWaitMs;
    idle_ = Deadline::In(patience_ms);
    int64_t redial_ms = kFirstRedialMs, denied_ms = kDeniedRedialMs;
    while (true) {
        if (job_.runs()) {
            if (!Nap(signals, -1, job_.NapMs())) return 0;
            const std::optional<JobChild::Ended> ended = job_.Check();
            if (!ended.has_value()) continue;
            if (options_.once) return ended->status;
            redial_ms = kFirstRedialMs;
            if (!Nap(signals, -1, PauseAfter(ended->status))) return 0;
            idle_ = Deadline::In(patience_ms);
        } else if (held_.has_value()) {
            if (!Nap(signals, held_->fd.get(), idle_.left_ms())) return 0;
            std::byte first;
            const ssize_t seen = ::recv(held_->fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
            if (seen < 0 && (errno == EAGAIN || errno == EINTR)) {
                if (!idle_.expired()) continue;
                if (options_.wait_ms > 0) return NoJob("it kept this worker waiting");
                idle_ = Deadline::In(patience_ms);
                continue;
            }
            // (Otherwise rank 0 hung up: it ended, or had no place for this worker.)
            began_ns_ = NowNs();
            const bool failed =
                seen == 1 && !job_.Start(options_.worker_arguments, std::move(held_->fd),
                                         held_->session, leader, AllowedCores());
            held_.reset();
            if (failed && !Nap(signals, -1, kMostRejoinDialMs)) return 0;
        } else if (const Status called = Call(); called.ok()) {
            LogEachOnce(LogLevel::kInfo,
                        fmt::format("waiting at {} for a job; Ctrl-C ends", leader));
            redial_ms = kFirstRedialMs;
            denied_ms = kDeniedRedialMs;
        } else {
            const Error& error = called.error();
            const bool denied = error.code == ErrorCode::kDenied;
            if (denied && options_.once) return error;
            if (options_.wait_ms > 0 && idle_.expired()) return NoJob(error.message);
            // Between two jobs, rank 0 is away only for a moment.
            if (denied || redial_ms >= kLastingRedialMs) {
                LogEachOnce(denied ? LogLevel::kWarning : LogLevel::kInfo,
                            fmt::format("no job from {} yet: {}. Weft keeps trying; Ctrl-C ends",
                                        leader, error.message));
            }
            if (!Nap(signals, -1, denied ? denied_ms : redial_ms)) return 0;
            if (denied) denied_ms = std::min(2 * denied_ms, kMostDeniedRedialMs);
            redial_ms = std::min(2 * redial_ms, kMostRejoinDialMs);
        }
    }
}

}  // namespace

Result<std::unique_ptr<WorkerJoiner>> WorkerJoiner::Open(const Options& options) {
    if (options.key_file.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--join needs --key-file: without a shared key anybody could run jobs "
                         "here");
    }
    WEFT_ASSIGN(Address address, ParseAddress(options.join));
    WEFT_ASSIGN(Bytes key, ReadKeyFile(options.key_file));
    return std::unique_ptr<WorkerJoiner>(
        std::make_unique<Joiner>(options, std::move(address), std::move(key)));
}

}  // namespace weft::cluster
