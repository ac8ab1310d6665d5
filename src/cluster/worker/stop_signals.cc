#include "cluster/worker/stop_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <initializer_list>

namespace weft::cluster {
namespace {

// Signals that this process holds; main thread.
sigset_t g_held_stops;
bool g_holds_stops = false;

}  // namespace

sigset_t StopSignals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) ::sigaddset(&signals, signal);
    return signals;
}

bool HangupsIgnored() {
    struct sigaction now {};
    return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void EndBySignal(int number) {
    ::signal(number, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, number);
    ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    ::raise(number);
    ::_exit(128 + number);
}

void HoldStops() {
    g_held_stops = StopSignals();
    g_holds_stops = true;
    ::pthread_sigmask(SIG_BLOCK, &g_held_stops, nullptr);
}

void ReleaseStops() {
    if (!g_holds_stops) return;
    g_holds_stops = false;
    ::pthread_sigmask(SIG_UNBLOCK, &g_held_stops, nullptr);
}

void GiveTermToControl() {
    sigset_t term;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
    if (g_holds_stops) ::sigdelset(&g_held_stops, SIGTERM);
    ::signal(SIGTERM, SIG_DFL);  // (the descriptor does not report an ignored signal)
}

}  // namespace weft::cluster
