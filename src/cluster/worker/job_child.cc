#include "cluster/worker/job_child.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/log.h"
#include "cluster/join/spawn.h"
#include "cluster/worker/memory_claims.h"
#include "cluster/worker/stop_signals.h"

namespace weft::cluster {
namespace {

constexpr int64_t kIdleMs = 3'600'000;
constexpr int64_t kLeaveMs = 1000;  // to end after another signal
// Time to end with the worker: a training rank first saves with the others. Below systemd's limit
// for a service (90 s).
constexpr int64_t kSaveMs = 80'000;

}  // namespace

void SetJobKind(const char* kind) {
    ::prctl(PR_SET_NAME, kind);
}

sigset_t WorkerSignals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&set, signal);
    if (!HangupsIgnored()) ::sigaddset(&set, SIGHUP);
    return set;
}

BlockedWorkerSignals::BlockedWorkerSignals() {
    const sigset_t set = WorkerSignals();
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedWorkerSignals::~BlockedWorkerSignals() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool TakeSignals(const Fd& signals, bool hangups) {
    signalfd_siginfo info;
    bool end = false;
    while (::read(signals.get(), &info, sizeof info) == sizeof info) {
        const bool hangup = info.ssi_signo == SIGHUP;
        end = end || (hangup ? hangups : info.ssi_signo != SIGCHLD);
    }
    return end;
}

bool JobChild::Start(const std::vector<std::string>& arguments, Fd control, const Session& session,
                     const std::string& from, std::span<const int> cores) {
    Log(LogLevel::kInfo, "a job of {} begins", from);
    auto pid = SpawnRank(arguments, std::move(control), session, false, cores);
    if (!pid.ok()) {
        Log(LogLevel::kError, "{}", pid.error().message);
        return false;
    }
    pid_ = *pid;
    from_ = from;
    began_ns_ = NowNs();
    timeout_ms_ = std::max<int64_t>(session.timeout_ms, 200);
    stopped_.reset();
    return true;
}

std::string JobChild::About() const {
    if (pid_ == 0) return "";
    return JobText(pid_, from_, began_ns_);
}

std::optional<JobChild::Ended> JobChild::Check() {
    if (pid_ == 0) return std::nullopt;
    int status = 0;
    const pid_t got = ::waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (got == pid_ && WIFSTOPPED(status)) {
        stopped_ = Deadline::In(timeout_ms_);
    } else if (got == pid_ && WIFCONTINUED(status)) {
        stopped_.reset();
    } else if (got == pid_ || (got < 0 && errno == ECHILD)) {
        pid_ = 0;
        stopped_.reset();
        if (!WIFSIGNALED(status)) {
            Log(LogLevel::kInfo, "the job ended with status {} ({}); waiting for the next",
                WEXITSTATUS(status), from_);
            return Ended{WEXITSTATUS(status)};
        }
        Log(LogLevel::kWarning, "the job's process was killed by signal {} ({}; {})",
            WTERMSIG(status), ::strsignal(WTERMSIG(status)), from_);
        return Ended{128 + WTERMSIG(status), true};
    }
    if (stopped_.has_value() && stopped_->expired()) {
        ::kill(pid_, SIGKILL);
        stopped_.reset();
    }
    return std::nullopt;
}

int64_t JobChild::NapMs() const {
    return stopped_.has_value() ? stopped_->left_ms() : kIdleMs;
}

void JobChild::End(std::span<JobChild> jobs, const Fd& signals) {
    Deadline deadline = Deadline::In(kSaveMs);
    const auto ask = [&] {
        for (JobChild& job : jobs) {
            if (!job.runs()) continue;
            ::kill(job.pid_, SIGTERM);
            if (!job.stopped_.has_value()) continue;
            job.stopped_ = Deadline::In(std::min(kLeaveMs, job.stopped_->left_ms()));
        }
    };
    ask();
    bool hurried = false;
    while (std::ranges::any_of(jobs, &JobChild::runs) && !deadline.expired()) {
        for (JobChild& job : jobs) {
            if (job.stopped_.has_value() && job.stopped_->expired()) ::kill(job.pid_, SIGKILL);
            std::string how;
            if (job.runs() && ReapChild(job.pid_, &how)) job.pid_ = 0;
        }
        if (TakeSignals(signals, false) && !hurried) {
            hurried = true;
            ask();
            deadline = Deadline::In(kLeaveMs);
        }
        ::usleep(2000);
    }
    for (JobChild& job : jobs) job.Kill();
}

void JobChild::Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    std::string how;
    const Deadline deadline = Deadline::In(1000);
    while (!ReapChild(pid_, &how) && !deadline.expired()) ::usleep(500);
    pid_ = 0;
}

}  // namespace weft::cluster
