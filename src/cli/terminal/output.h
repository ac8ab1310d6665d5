// Output of commands: JSON, tables, a progress line, and stop signals.
//
// Standard output may be a full disk or a pipe without a reader. The first failure is stored, and
// FinishOutput makes it the command's exit status. Failures of standard error are ignored.
//
// The reader of standard output may pause (`| less`, Ctrl-S). Results wait for the reader, but only
// half a second after the user requests a stop. Lines about continuing work (PostJson) do not wait:
// they are queued, and dropped and counted if the queue is full.
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

// Keeps the order in which fields are added.
using Json = nlohmann::ordered_json;

// Writes to the buffered standard output. A failure stops the command, like Ctrl-C.
void WriteOut(std::string_view text);
// Writes to standard output at once. A failure stops the command, like Ctrl-C. If log lines
// go to the same terminal, no log line begins within a line of this text.
void Stream(std::string_view text);
// As Stream, but returns before the text is written, so decoding does not wait for the writing
// thread (some 80 us per token). The next call waits until this text is written.
void StreamToken(std::string_view text);
// Text of a model or file for Stream: at a terminal, without the characters that command it.
std::string ForTerminal(std::string text);
// Marks a prompt with the user's input as an unfinished line, within which no log line begins.
// stands: false when the line has been entered.
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

// Prints one line on standard output at once. Invalid UTF-8 becomes U+FFFD. A failure does not
// request a stop. PostJson is for servers and training: it returns even if the reader has paused.
void PrintJson(const Json& json);
void PostJson(const Json& json);
// Prints an error with --json, so that standard output has one JSON document: nothing after
// PrintJson, which has printed the result.
void PrintErrorJson(const Json& error);
// A part of the result that an error completes to one document.
struct PartialJson {
    Json fields = Json::object();   // of the error's object, in front of its own
    std::string before{}, after{};  // text around the object: begun is "[ROW"
};
void KeepPartialJson(PartialJson partial);

// Whether standard output failed. A command that stops for this reason needs no further message.
bool OutputFailed();
// Writes all buffered and queued output, including log lines, and returns `status`. If `status` is
// 0 or the status of a stop, three cases return another status. A failure of standard output is
// reported and returns 1. A pipe without a reader returns 141, as in shells, without a message. A
// stop request before a paused reader has read everything returns 130.
int FinishOutput(int status);
// Opens /dev/null as each of descriptors 0, 1 and 2 that the caller closed. Otherwise the next
// opened file would get that number.
void OpenStandardStreams();

// Whether `fd` is a terminal that obeys cursor escapes (TERM is not "dumb").
bool TakesEscapes(int fd);
// Whether TakesEscapes(fd) and the user wants colors (no-color.org).
bool TakesColour(int fd);

// The text in at most this many columns of a terminal, without its middle if it is wider:
// "loading /mod...gguf: 42 %".
std::string FitColumns(std::string_view text, size_t columns);

// A line on standard error that is rewritten in place, on a terminal only, and cut to the
// terminal's width. The destructor removes it.
class ProgressLine {
  public:
    ProgressLine();
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;
    void Show(std::string_view text);
    void Clear();
    void Keep();  // ends the line, which stays

  private:
    bool terminal_;
    bool shown_ = false;
};

// Catches Ctrl-C (SIGINT) and SIGTERM: the first one sets the returned flag, a second one ends the
// process. SIGHUP, which a closing terminal or ssh session may send twice, also sets the flag but
// never ends the process, and stays ignored if it was (nohup). Put the flag into
// ClusterOptions::stop. grace_ms: delay of SIGTERM and SIGHUP.
const std::atomic<bool>* CatchInterrupts(int grace_ms = 0);

// After SIGINT or SIGTERM, the other of the two also ends the process at once.
void EndAtAnySecondStop();

// Decides whether a SIGHUP stops this process or makes it reload its files.
class HangupRule {
  public:
    HangupRule() = default;
    // reloads: the process reloads files at a SIGHUP while its terminal exists, or if it never had
    // one. Call it before anything except CatchInterrupts catches SIGHUP.
    static HangupRule Find(bool reloads);
    // Whether a SIGHUP at this time stops the process. Safe in a signal handler.
    bool Stops() const;

  private:
    bool reloads_ = false, ignored_ = false, had_terminal_ = false;
};

// Call after CatchInterrupts: each SIGHUP that does not stop the process (HangupRule) sets the
// returned flag, which the caller clears.
std::atomic<bool>* CatchReloads();

}  // namespace weft::cli
