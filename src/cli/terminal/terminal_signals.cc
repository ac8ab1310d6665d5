#include "cli/terminal/terminal_signals.h"

#include <atomic>

namespace weft::cli {
namespace {

// Signal handlers reach only globals.
std::atomic<bool> g_resized{false}, g_stopping{false}, g_continued{false};

void OnTerminalSignal(int number) {
    if (number == SIGWINCH) g_resized = true;
    if (number == SIGTSTP) g_stopping = true;
    if (number == SIGCONT) g_continued = true;
}

}  // namespace

TerminalSignals::TerminalSignals() {
    g_resized = g_stopping = g_continued = false;
    Set();
}

TerminalSignals::~TerminalSignals() {
    ::sigaction(SIGWINCH, &resized_, nullptr);
    ::sigaction(SIGTSTP, &stopping_, nullptr);
    ::sigaction(SIGCONT, &continued_, nullptr);
    if (g_stopping.exchange(false)) ::raise(SIGTSTP);
}

void TerminalSignals::Set() {
    struct sigaction action {};
    action.sa_handler = OnTerminalSignal;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGWINCH, &action, &resized_);
    ::sigaction(SIGCONT, &action, &continued_);
    ::sigaction(SIGTSTP, &action, &stopping_);
    // (A shell without job control ignores it.)
    if (stopping_.sa_handler == SIG_IGN) ::sigaction(SIGTSTP, &stopping_, nullptr);
}

bool TerminalSignals::TakeResized() {
    return g_resized.exchange(false);
}

bool TerminalSignals::TakeStopping() {
    return g_stopping.exchange(false);
}

bool TerminalSignals::TakeContinued() {
    return g_continued.exchange(false);
}

void TerminalSignals::Stop() {
    ::sigaction(SIGTSTP, &stopping_, nullptr);
    ::raise(SIGTSTP);
    Set();
    g_continued = true;
}

}  // namespace weft::cli
