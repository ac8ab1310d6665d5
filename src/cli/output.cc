#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace weft::cli {
namespace {

// A signal handler reaches nothing else.
std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnInterrupt(int) { g_stop.store(true); }

}  // namespace

void PrintJson(const Json& json) {
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string BytesText(uint64_t bytes) {
    const double mib = static_cast<double>(bytes) / (1024.0 * 1024.0);
    if (mib >= 1024) return fmt::format("{:.2f} GiB", mib / 1024);
    return fmt::format("{:.1f} MiB", mib);
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { Clear(); }

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

const std::atomic<bool>* CatchInterrupts() {
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    return &g_stop;
}

void Stream(std::string_view text) {
    const bool all = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!all || std::fflush(stdout) != 0) g_stop.store(true);
}

}  // namespace weft::cli
