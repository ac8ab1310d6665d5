#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/bytes.h"
#include "base/log.h"
#include "base/result.h"

namespace weft::cli {
namespace {

// A signal handler reaches nothing else.
std::atomic<bool> g_stop{false};
std::atomic<bool> g_hangup{false};
std::atomic<int> g_output_errno{0};  // of the first failure of standard output
std::atomic<bool> g_output_told{false};
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

// Log lines go where output goes: to a user's eyes.
bool SharesTerminal() {
    static const bool shares = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
    return shares;
}

constexpr int kBrokenPipeStatus = 128 + SIGPIPE;

bool NoteFailure() {
    int none = 0;
    g_output_errno.compare_exchange_strong(none, errno == 0 ? EIO : errno);
    return false;
}

bool Put(std::string_view text) {
    if (text.empty()) return true;  // its data may be null, which fwrite must not be given
    errno = 0;
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() || NoteFailure();
}

bool Flush() {
    errno = 0;
    return std::fflush(stdout) == 0 || NoteFailure();
}

}  // namespace

void WriteOut(std::string_view text) {
    if (!Put(text)) g_stop.store(true);
}

void Stream(std::string_view text) {
    if (!Put(text) || !Flush()) g_stop.store(true);
    if (!text.empty() && SharesTerminal()) SetLineOpen(text.back() != '\n');
}

void NotePrompt(bool stands) {
    if (SharesTerminal()) SetLineOpen(stands);
}

void WriteErr(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

void PrintJson(const Json& json) {
    Put(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    Flush();
}

bool OutputFailed() {
    return g_output_errno != 0;
}

int FinishOutput(int status) {
    Flush();
    // (What wrote without these functions left its mark.)
    if (std::ferror(stdout) != 0) NoteFailure();
    const int number = g_output_errno;
    const bool other = status != 0 && status != ExitStatus(ErrorCode::kCancelled);
    if (number == 0 || other || g_output_told.exchange(true)) return status;
    if (number == EPIPE) return kBrokenPipeStatus;
    PrintErr("weft: error: standard output: {}. What was to be printed is not all there.\n",
             std::strerror(number));
    return ExitStatus(ErrorCode::kIo);
}

void OpenStandardStreams() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        // The lowest number that is free is this one; reading 0 and writing the others still fails.
        if (::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

bool TakesEscapes(int fd) {
    const char* term = std::getenv("TERM");
    const std::string_view kind = term == nullptr ? "" : term;
    return ::isatty(fd) == 1 && !kind.empty() && kind != "dumb";
}

bool TakesColour(int fd) {
    const char* no = std::getenv("NO_COLOR");
    return TakesEscapes(fd) && (no == nullptr || *no == '\0');
}

std::string BytesText(uint64_t bytes) {
    return weft::BytesText(bytes);
}

ProgressLine::ProgressLine() : terminal_(TakesEscapes(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
    Clear();
}

void ProgressLine::Show(std::string_view text) {
    if (!terminal_) return;
    PrintErr("\r\033[K{}", text);
    SetLineOpen(true);
    shown_ = true;
}

void ProgressLine::Clear() {
    if (!shown_) return;
    WriteErr("\r\033[K");
    SetLineOpen(false);
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

}  // namespace weft::cli
