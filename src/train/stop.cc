#include "train/stop.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/deadline.h"
#include "cluster/worker/stop_signals.h"

namespace weft::train {
namespace {

using Phase = StopScope::Phase;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

std::atomic<cluster::Cluster*> g_cluster{nullptr};
std::atomic<Phase> g_phase{Phase::kLoading};
std::atomic<bool> g_saves{false};
std::atomic<bool> g_at_once{false};
std::atomic<int64_t> g_first_ns{0};  // time of the first signal; 0: none
std::atomic<void (*)(int)> g_before[NSIG];
static_assert(std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<cluster::Cluster*>::is_always_lock_free);

// Ends the job at once. A third signal ends this process regardless of the others.
void EndAtOnce(int signal) {
    cluster::Cluster* const cluster = g_cluster.load();
    g_at_once = true;
    if (cluster == nullptr || cluster->size() == 1) cluster::EndBySignal(signal);
    ::signal(signal, cluster::EndBySignal);
    cluster::SetStoppedStatus(ExitStatus(ErrorCode::kCancelled));
    cluster->RequestStop();
}

// Runs in a signal handler. A blocked reader of standard error may take up to a second.
[[noreturn]] void EndAlone() {
    ::signal(SIGALRM, [](int) { ::_exit(kStoppedStatus); });
    ::alarm(1);
    constexpr std::string_view kMessage =
        "weft: stopped by a signal before the first update; nothing is lost\n";
    [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    ::_exit(kStoppedStatus);
}

// Ends the job before training starts, when nothing can be lost.
void EndLoading(int signal) {
    cluster::Cluster* const cluster = g_cluster.load();
    if (cluster != nullptr && cluster->size() == 1 && g_saves.load()) EndAlone();
    void (*const before)(int) = g_before[signal].load();
    if (before != SIG_DFL && before != SIG_IGN) {
        before(signal);  // sets the flag that the cluster of rank 0 checks
    } else if (cluster != nullptr) {
        cluster->RequestStop();
    } else {
        EndAlone();
    }
}

void OnSignal(int signal) {
    const int saved = errno;
    int64_t none = 0;
    const int64_t now = NowNs();
    if (g_first_ns.compare_exchange_strong(none, now)) {
        if (g_phase.load() == Phase::kLoading) EndLoading(signal);
    } else if (signal != SIGHUP && now - none >= kRepeatMs * 1'000'000) {
        EndAtOnce(signal);
    }
    errno = saved;
}

// On the control thread of a rank that a listening worker started: a signal to the rank counts as a
// signal to the job. If nothing is saved, or at a second signal, the rank just leaves.
bool TakeTerm() {
    if (g_cluster.load() == nullptr || !g_saves.load() || g_at_once.load()) return false;
    OnSignal(SIGTERM);
    return true;
}

}  // namespace

bool InterruptsIgnored() {
    struct sigaction now {};
    return ::sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void CatchStops(bool interrupts) {
    const bool hangups = !cluster::HangupsIgnored();
    for (const int signal : kSignals) {
        if (signal == SIGHUP && !hangups) continue;
        if (signal == SIGINT && !interrupts) {
            ::signal(SIGINT, SIG_IGN);
            continue;
        }
        struct sigaction action {};
        struct sigaction before {};
        if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == OnSignal) continue;
        g_before[signal].store(before.sa_handler);
        action.sa_handler = OnSignal;
        action.sa_flags = SA_RESTART;
        for (const int other : kSignals) ::sigaddset(&action.sa_mask, other);
        ::sigaction(signal, &action, nullptr);
    }
    cluster::SetTermTaker(TakeTerm);
    // SIGUSR1 acts like SIGTERM.
    g_before[SIGUSR1].store(g_before[SIGTERM].load());
    // (Such writes then fail with an error, which is handled.)
    ::signal(SIGPIPE, SIG_IGN);
}

bool StopRequested() {
    return g_first_ns.load(std::memory_order_relaxed) != 0;
}

bool EndedAtOnce() {
    return g_at_once.load();
}

StopScope::StopScope(cluster::Cluster& cluster, bool saves) : saves_(saves) {
    g_phase = Phase::kLoading;
    g_cluster = &cluster;
    g_saves = saves;
    if (saves) cluster::SetStoppedStatus(kStoppedStatus);
    cluster::ReleaseStops();
}

StopScope::~StopScope() {
    g_saves = false;
    g_cluster = nullptr;
}

void StopScope::Enter(Phase phase) {
    if (saves_) g_phase = phase;
}

}  // namespace weft::train
