#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>

#include "base/bytes.h"

namespace weft::cli {
namespace {

// A signal handler reaches nothing else.
std::atomic<bool> g_stop{false};
std::atomic<bool> g_hangup{false};
int g_grace_ms = 0;
static_assert(std::atomic<bool>::is_always_lock_free);

timer_t g_grace;

void OnInterrupt(int) {
    g_stop.store(true);
}

void OnTerminate(int) {
    itimerspec once{};
    once.it_value.tv_nsec = g_grace_ms * 1'000'000L;
    ::timer_settime(g_grace, 0, &once, nullptr);
}

}  // namespace

void PrintJson(const Json& json) {
    // (A reader that is gone, or a full disk, is no reason to end what is told of.)
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::fwrite(line.data(), 1, line.size(), stdout);
}

std::string BytesText(uint64_t bytes) {
    return weft::BytesText(bytes);
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
    Clear();
}

void ProgressLine::Show(std::string_view text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    shown_ = true;
}

void ProgressLine::Clear() {
    if (!shown_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    shown_ = false;
}

const std::atomic<bool>* CatchInterrupts(int grace_ms) {
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    if (grace_ms > 0) {
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGALRM;
        // A launcher passes on the signal that its ranks had already: the second is no order to
        // drop everything.
        action.sa_flags = static_cast<int>(SA_RESTART);
        ::sigaction(SIGALRM, &action, nullptr);
        action.sa_handler = OnTerminate;
        g_grace_ms = grace_ms;
        if (::timer_create(CLOCK_MONOTONIC, &event, &g_grace) == 0) {
            ::sigaction(SIGTERM, &action, nullptr);
        }
    }
    ::signal(SIGPIPE, SIG_IGN);
    return &g_stop;
}

std::atomic<bool>* CatchHangups() {
    struct sigaction action {};
    action.sa_handler = [](int) { g_hangup.store(true); };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGHUP, &action, nullptr);
    return &g_hangup;
}

void Stream(std::string_view text) {
    const bool all = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!all || std::fflush(stdout) != 0) g_stop.store(true);
}

}  // namespace weft::cli
