// What commands print, and when: JSON, tables, a progress line, Ctrl-C.
//
// Standard output may be a full disk, or a pipe that nobody reads any more. The first failure is
// kept; FinishOutput makes it the command's exit status. Standard error may fail unnoticed.
//
// The reader of standard output may also stop (`| less`, Ctrl-S). Results wait for it; once the
// user asks to stop, for half a second. Lines about work that goes on (PostJson) do not wait: they
// are queued, and dropped and counted where the queue is full.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/standard_error.h"

namespace weft::cli {

// Fields in the order in which they are added.
using Json = nlohmann::ordered_json;

// Writes to standard output, which is buffered. After a failure asks to stop like Ctrl-C.
void WriteOut(std::string_view text);
// Writes to standard output at once. After a failure asks to stop like Ctrl-C. Where log lines go
// to the same terminal, none begins within a line of it.
void Stream(std::string_view text);
// As Stream, but returns before the text is written, so that decoding does not wait for the thread
// that writes (some 80 us a token). The next text waits for it.
void StreamToken(std::string_view text);
// A prompt, and what a user types behind it, is such a line, too; until it was entered.
void NotePrompt(bool stands);
inline void FlushOut() {
    Stream({});
}

template <typename... Args>
void PrintOut(fmt::format_string<Args...> format, Args&&... args) {
    WriteOut(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void PrintErr(fmt::format_string<Args...> format, Args&&... args) {
    WriteErr(fmt::format(format, std::forward<Args>(args)...));
}

// As one line on standard output, at once. Bytes that are not UTF-8 come out as U+FFFD. A failure
// does not ask to stop. PostJson is for servers and training: it returns while the reader has
// stopped.
void PrintJson(const Json& json);
void PostJson(const Json& json);

// Whether standard output failed. Then a command that was asked to stop has said all there is.
bool OutputFailed();
// Writes what is buffered and queued, log lines included. Returns `status`; but where standard
// output failed and nothing else is wrong, says why and returns 1, or quietly 141, as shells have
// it, where nobody reads a pipe; and 130 where the user asked to stop before a reader that had
// stopped took all of it.
int FinishOutput(int status);
// Descriptors 0, 1 and 2 that the caller closed lead nowhere, not to the next file that is opened.
void OpenStandardStreams();

// Whether a terminal is there that moves its cursor as it is told (TERM is not "dumb").
bool TakesEscapes(int fd);
// That, and the user wants colours (no-color.org).
bool TakesColour(int fd);

// A line on standard error that is written over and over, on a terminal only, and gone with the
// object.
class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void Show(std::string_view text);
    void Clear();

  private:
    bool terminal_;
    bool shown_ = false;
};

// From here on Ctrl-C (SIGINT) and SIGTERM set the flag that is returned, once; a second one ends
// the process. So does SIGHUP, which a terminal or an ssh session that ends sends, perhaps twice:
// it ends no process, and stays ignored where it was (nohup). The flag goes into
// ClusterOptions::stop. grace_ms: SIGTERM and SIGHUP set it so much later.
const std::atomic<bool>* CatchInterrupts(int grace_ms = 0);

// Decides whether a SIGHUP asks this process to stop or to read its files again.
class HangupRule {
  public:
    HangupRule() = default;
    // reloads: the process reads files again at a SIGHUP while its terminal is there, or where it
    // never had one. Call it before anything but CatchInterrupts catches SIGHUP.
    static HangupRule Find(bool reloads);
    // Whether a SIGHUP that comes now asks to stop. Safe in a signal handler.
    bool Stops() const;

  private:
    bool reloads_ = false, ignored_ = false, had_terminal_ = false;
};

// After CatchInterrupts: from here on a SIGHUP that does not ask to stop (HangupRule) sets the flag
// that is returned, each time, and the caller clears it.
std::atomic<bool>* CatchReloads();

}  // namespace weft::cli
