#include "cli/terminal/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <vector>

#include "base/descriptor_writer.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/result.h"
#include "base/utf8.h"
#include "cluster/worker/stop_signals.h"

namespace weft::cli {
namespace {

// Signal handlers reach only globals.
std::atomic<bool> g_stop{false};
std::atomic<bool> g_reload{false};
std::atomic<int> g_output_errno{0};  // first failure of standard output
std::atomic<bool> g_output_told{false};
int g_grace_ms = 0;
std::atomic<bool> g_any_second_ends{false};
static_assert(std::atomic<bool>::is_always_lock_free);

timer_t g_grace;

constexpr uint32_t kInterruptBit = 1, kTermBit = 2;
std::atomic<uint32_t> g_caught{0};

void OnInterrupt(int number) {
    g_stop.store(true);
    if (number != SIGINT && number != SIGTERM) return;
    const uint32_t bit = number == SIGINT ? kInterruptBit : kTermBit;
    const uint32_t before = g_caught.fetch_or(bit);
    // (Under a launcher, a signal of the other number may be the same request.)
    const bool any = g_any_second_ends && g_grace_ms == 0;
    if ((before & (any ? kInterruptBit | kTermBit : bit)) != 0) cluster::EndBySignal(number);
}

// A shell lets the programs that it starts in the background ignore SIGINT.
bool IsIgnored(int number) {
    struct sigaction now {};
    return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void OnTerminate(int) {
    itimerspec once{};
    once.it_value.tv_nsec = g_grace_ms * 1'000'000L;
    ::timer_settime(g_grace, 0, &once, nullptr);
}

bool HasTerminal() {
    const int fd = ::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
}

HangupRule g_hangups;  // set before OnReload is installed

void OnReload(int) {
    const int saved = errno;
    (g_hangups.Stops() ? g_stop : g_reload).store(true);
    errno = saved;
}

// Whether log lines and output go to the same terminal.
bool SharesTerminal() {
    static const bool shares = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
    return shares;
}

constexpr int kBrokenPipeStatus = 128 + SIGPIPE;

void NoteFailure(int number) {
    int none = 0;
    g_output_errno.compare_exchange_strong(none, number);
}

std::string LinesDropped(uint64_t count) {
    Log(LogLevel::kWarning, "dropped {} line{}: the reader of standard output stopped", count,
        count == 1 ? "" : "s");
    return "";
}

constinit DescriptorWriter g_writer(STDOUT_FILENO, LinesDropped);
constexpr size_t kBufferBytes = 64 << 10;
constexpr int64_t kTurnMs = 50, kLastMs = 500;
std::mutex g_buffer_mutex;
std::string g_buffer;
std::atomic<bool> g_json_printed{false};
PartialJson g_partial;
std::atomic<bool> g_given_up{false};  // after a stop request, the reader read nothing

// Waits until the reader has read all queued text. Returns false if standard output failed, or the
// user requested a stop and the reader has paused.
bool AwaitReader() {
    while (!g_given_up && !g_writer.Flush(kTurnMs)) {
        if (g_stop && !g_writer.Flush(kLastMs)) g_given_up = true;
    }
    if (g_writer.error() != 0) NoteFailure(g_writer.error());
    return !g_given_up && g_writer.error() == 0;
}

enum class Return { kOnceQueued, kOnceWritten };

// Writes the buffer after everything that is queued.
bool Flush(Return when = Return::kOnceWritten) {
    std::fflush(stdout);  // libedit writes there
    std::string text;
    {
        const std::lock_guard lock(g_buffer_mutex);
        text.swap(g_buffer);
    }
    if (text.empty()) return g_output_errno == 0;
    if (!AwaitReader()) return false;
    g_writer.Post(text);
    return when == Return::kOnceQueued || AwaitReader();
}

bool Put(std::string_view text) {
    size_t size = 0;
    {
        const std::lock_guard lock(g_buffer_mutex);
        g_buffer += text;
        size = g_buffer.size();
    }
    return size < kBufferBytes || Flush();
}

std::string JsonLine(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int StatusOfOutput(int status) {
    Flush();
    g_writer.Flush(kLastMs);
    if (g_writer.error() != 0) NoteFailure(g_writer.error());
    // (Code that bypasses these functions leaves its error here.)
    if (std::ferror(stdout) != 0) NoteFailure(EIO);
    const int number = g_output_errno;
    const bool other = status != 0 && status != ExitStatus(ErrorCode::kCancelled);
    if (number == 0 && g_given_up && !other) return ExitStatus(ErrorCode::kCancelled);
    if (number == 0 || other || g_output_told.exchange(true)) return status;
    if (number == EPIPE) return kBrokenPipeStatus;
    PrintErr("weft: error: standard output: {}. The output is incomplete.\n",
             std::strerror(number));
    return ExitStatus(ErrorCode::kIo);
}

}  // namespace

void WriteOut(std::string_view text) {
    if (!Put(text)) g_stop.store(true);
}

void Stream(std::string_view text) {
    if (!Put(text) || !Flush()) g_stop.store(true);
    if (!text.empty() && SharesTerminal()) SetLineOpen(text.back() != '\n');
}

void StreamToken(std::string_view text) {
    if (!Put(text) || !Flush(Return::kOnceQueued)) g_stop.store(true);
    if (!text.empty() && SharesTerminal()) SetLineOpen(text.back() != '\n');
}

std::string ForTerminal(std::string text) {
    static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    if (!terminal) return text;
    std::erase(text, '\r');
    return PrintableLines(text);
}

void NotePrompt(bool stands) {
    if (SharesTerminal()) SetLineOpen(stands);
}

void PrintJson(const Json& json) {
    g_json_printed = true;
    Put(JsonLine(json));
    Flush();
}

void PostJson(const Json& json) {
    const std::lock_guard lock(g_buffer_mutex);
    g_writer.Post(std::exchange(g_buffer, "") + JsonLine(json));
}

void PrintErrorJson(const Json& error) {
    if (g_json_printed.exchange(true)) return;
    Json object = g_partial.fields;
    object.update(error);
    const std::lock_guard lock(g_buffer_mutex);
    g_writer.Post(std::exchange(g_buffer, "") + g_partial.before + JsonLine(object) +
                  g_partial.after);
}

void KeepPartialJson(PartialJson partial) {
    g_partial = std::move(partial);
}

bool OutputFailed() {
    return g_output_errno != 0;
}

int FinishOutput(int status) {
    status = StatusOfOutput(status);
    FlushErr();
    return status;
}

void OpenStandardStreams() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
        // open() returns the lowest free number, which is this one. Reading 0 and writing the
        // others still fails.
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

std::string FitColumns(std::string_view text, size_t columns) {
    constexpr std::string_view kGap = "...";
    struct Letter {
        size_t begin, width;
    };
    std::vector<Letter> letters;
    size_t all = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t bytes = std::max<size_t>(1, CodePointLength(text, at));
        utf8proc_int32_t code = -1;
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                         static_cast<utf8proc_ssize_t>(bytes), &code);
        const int width = code < 0 ? 1 : utf8proc_charwidth(code);
        letters.push_back({at, static_cast<size_t>(std::max(0, width))});
        all += letters.back().width;
        at += bytes;
    }
    if (all <= columns) return std::string(text);
    const size_t gap = columns < 3 * kGap.size() ? 0 : kGap.size();
    const size_t head_room = gap == 0 ? columns : (columns - gap) / 2;
    size_t head = 0, tail = letters.size();  // characters before `head` and from `tail` on stay
    for (size_t used = 0; (used += letters[head].width) <= head_room;) ++head;
    if (gap == 0) return std::string(text.substr(0, letters[head].begin));
    for (size_t used = head_room + gap; (used += letters[tail - 1].width) <= columns;) --tail;
    const size_t end = tail < letters.size() ? letters[tail].begin : text.size();
    return fmt::format("{}{}{}", text.substr(0, letters[head].begin), kGap, text.substr(end));
}

ProgressLine::ProgressLine() : terminal_(TakesEscapes(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
    Clear();
}

void ProgressLine::Show(std::string_view text) {
    if (!terminal_) return;
    std::string line = Printable(text);
    winsize size{};
    // (A character in the last column would begin a new row in some terminals.)
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    if (known) line = FitColumns(line, size.ws_col - 1U);
    PrintErr("\r\033[K{}", line);
    SetLineOpen(true);
    shown_ = true;
}

void ProgressLine::Clear() {
    if (!shown_) return;
    WriteErr("\r\033[K");
    SetLineOpen(false);
    shown_ = false;
}

void ProgressLine::Keep() {
    if (!shown_) return;
    WriteErr("\n");
    SetLineOpen(false);
    shown_ = false;
}

const std::atomic<bool>* CatchInterrupts(int grace_ms) {
    struct sigaction action {};
    action.sa_handler = OnInterrupt;
    action.sa_flags = SA_RESTART;
    g_caught = 0;
    if (!IsIgnored(SIGINT)) ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    const bool hangs_up = !cluster::HangupsIgnored();
    if (hangs_up) ::sigaction(SIGHUP, &action, nullptr);
    if (grace_ms > 0) {
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGALRM;
        // A launcher forwards a signal that its ranks already have, so the second signal is not a
        // request to stop at once.
        ::sigaction(SIGALRM, &action, nullptr);
        action.sa_handler = OnTerminate;
        g_grace_ms = grace_ms;
        if (::timer_create(CLOCK_MONOTONIC, &event, &g_grace) == 0) {
            ::sigaction(SIGTERM, &action, nullptr);
            if (hangs_up) ::sigaction(SIGHUP, &action, nullptr);
        }
    }
    ::signal(SIGPIPE, SIG_IGN);
    return &g_stop;
}

void EndAtAnySecondStop() {
    g_any_second_ends = true;
}

HangupRule HangupRule::Find(bool reloads) {
    HangupRule rule;
    rule.reloads_ = reloads;
    rule.ignored_ = cluster::HangupsIgnored();
    rule.had_terminal_ = HasTerminal();
    return rule;
}

bool HangupRule::Stops() const {
    if (ignored_) return false;
    return !reloads_ || (had_terminal_ && !HasTerminal());
}

std::atomic<bool>* CatchReloads() {
    g_hangups = HangupRule::Find(true);
    struct sigaction action {};
    action.sa_handler = OnReload;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGHUP, &action, nullptr);
    return &g_reload;
}

}  // namespace weft::cli
