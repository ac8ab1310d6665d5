#include "cluster/job_child.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "base/log.h"
#include "cluster/spawn.h"
#include "cluster/stop_signals.h"
#include "hw/cpu.h"

namespace weft::cluster {
namespace {

constexpr int64_t kIdleMs = 3'600'000;
constexpr int64_t kLeaveMs = 1000;  // to end after a hurry
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
                     const std::string& from) {
    Log(LogLevel::kInfo, "a job of {} begins", from);
    auto pid = SpawnRank(arguments, std::move(control), session, false, AllowedCores());
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
    std::string kind;
    std::ifstream file(fmt::format("/proc/{}/comm", pid_));
    std::getline(file, kind);
    // (A new process still has the program's name.)
    if (kind.empty() || kind == "weft" || kind == "exe") kind = "a job";
    return fmt::format("{} of {}, for {:.0f} s", kind, from_, SecondsSince(began_ns_));
}

std::optional<int> JobChild::Check() {
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
            Log(LogLevel::kInfo, "the job ended with status {}; waiting for the next",
                WEXITSTATUS(status));
            return WEXITSTATUS(status);
        }
        Log(LogLevel::kWarning, "the job's process was killed by signal {} ({})", WTERMSIG(status),
            ::strsignal(WTERMSIG(status)));
        return 128 + WTERMSIG(status);
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

void JobChild::End(const Fd& signals) {
    if (pid_ == 0) return;
    ::kill(pid_, SIGTERM);
    std::string how;
    bool hurried = stopped_.has_value();
    Deadline deadline = Deadline::In(hurried ? kLeaveMs : kSaveMs);
    while (!deadline.expired()) {
        if (ReapChild(pid_, &how)) {
            pid_ = 0;
            return;
        }
        if (TakeSignals(signals, false) && !hurried) {
            hurried = true;
            ::kill(pid_, SIGTERM);
            deadline = Deadline::In(kLeaveMs);
        }
        ::usleep(2000);
    }
    Kill();
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
