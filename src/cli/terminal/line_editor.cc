#include "cli/terminal/line_editor.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file_lock.h"
#include "base/log.h"
#include "cli/terminal/output.h"
#include "cli/terminal/private_file.h"
#include "cli/terminal/terminal_keys.h"
#include "cli/terminal/terminal_signals.h"

#ifdef WEFT_HAS_LIBEDIT
#include <histedit.h>
#endif

namespace weft::cli {

constexpr int kLookMs = 200;   // interval of checks of `stop`
constexpr int kEscapeMs = 50;  // after Escape: wait for the rest of a terminal's key
constexpr int kHistoryLockMs = 500;
constexpr int kPauseMs = 20;  // in a paste: text received before such a pause is shown

struct LineEditor::State {
    int woken = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<bool> over{false};
    const std::atomic<bool>* stop = nullptr;
    std::string prompt;
    How why = How::kEnd;  // no line was read
#ifdef WEFT_HAS_LIBEDIT
    EditLine* edit = nullptr;
    History* history = nullptr;
    std::string history_path;
    TerminalKeys keys;
    std::optional<TerminalSignals> signals;  // set while a line is read
    bool escapes = false;                    // the terminal supports escapes
#endif

    enum class InputEvent { kByte, kNone, kWoken, kEnd };
    // Reads the next byte of standard input. kNone: none arrived within most_ms (-1: no limit).
    InputEvent NextByte(char& byte, int most_ms = -1) {
        for (int waited_ms = 0;;) {
            const int wait_ms = most_ms < 0 ? kLookMs : std::min(kLookMs, most_ms - waited_ms);
            pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {woken, POLLIN, 0}};
            if (over || (stop != nullptr && stop->load())) return InputEvent::kEnd;
            HeedSignals();
            if (TakeLineBroken()) ShowAgain();
            const int ready = ::poll(fds, 2, wait_ms);
            if (ready < 0 && errno != EINTR) return InputEvent::kEnd;
            uint64_t count = 0;
            if (::read(woken, &count, sizeof count) > 0)
                return over ? InputEvent::kEnd : InputEvent::kWoken;
            if (ready == 0) waited_ms += wait_ms;
            if (most_ms >= 0 && waited_ms >= most_ms) return InputEvent::kNone;
            if (ready <= 0 || fds[0].revents == 0) continue;
            const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
            if (got == 1) return InputEvent::kByte;
            if (got == 0 || errno != EINTR) return InputEvent::kEnd;
        }
    }

    void HeedSignals();
    // Shows the line again below a log line that interrupted it.
    void ShowAgain();
    void ShowPrompt() {
        Stream(prompt);
        NotePrompt(true);
    }
    // Reads a line with the terminal's own line editing.
    Line ReadPlain() {
        ShowPrompt();
        std::string text;
        for (;;) {
            char byte = 0;
            switch (NextByte(byte)) {
                case InputEvent::kWoken: return {How::kInterrupted};
                case InputEvent::kNone:
                case InputEvent::kEnd:
                    if (text.empty()) return {};
                    return {How::kLine, std::move(text)};
                case InputEvent::kByte: break;
            }
            if (byte == '\n') {
                NotePrompt(false);
                return {How::kLine, std::move(text)};
            }
            text += byte;
        }
    }
};

#ifdef WEFT_HAS_LIBEDIT
namespace {

// The row, counted from the prompt's, in which a terminal shows the character after this text.
int RowsOf(std::wstring_view text, int columns) {
    int row = 0, column = 0;
    for (const wchar_t c : text) {
        if (c == L'\n') {
            ++row;
            column = 0;
            continue;
        }
        const bool control = c < 32 || c == 127;  // ^X
        const int width = c == L'\t' ? 8 - column % 8 : control ? 2 : std::max(0, ::wcwidth(c));
        const bool fits = column + width <= columns;
        if (!fits) ++row;
        column = fits ? column + width : width;
        if (column == columns) {
            ++row;
            column = 0;
        }
    }
    return row;
}

// Escapes that move to the first row of the edited line and clear from there. Terminals rewrap rows
// when their width changes.
std::string ToFirstRow(EditLine* edit, const std::string& prompt, bool escapes) {
    if (!escapes) return "\n";
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const LineInfoW* line = ::el_wline(edit);
    std::wstring shown(prompt.begin(), prompt.end());
    shown.append(line->buffer, line->cursor);
    const int row = known ? RowsOf(shown, size.ws_col) : 0;
    return row > 0 ? fmt::format("\r\033[{}A\033[J", row) : "\r\033[J";
}

// The key for a paste: libedit calls Paste for this key. No keyboard has it (it is a C1 control).
constexpr wchar_t kPasteKey = 0x80;
constexpr const char* kPasteKeyText = "\xc2\x80";

template <typename State>
State& StateOf(EditLine* edit) {
    State* state = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &state);
    return *state;
}

// In vi mode, Escape alone is a key. In emacs mode, Escape begins a key, however long the rest
// takes.
bool EscapeIsKey(EditLine* edit) {
    const char* manner = nullptr;
    return ::el_get(edit, EL_EDITOR, &manner) == 0 && manner != nullptr &&
           std::string_view(manner) == "vi";
}

// Waits up to most_ms for a byte and adds it to `keys`; `came`: a byte arrived. Returns false when
// reading ends, with the reason in `why`.
template <typename State>
bool TakeByte(State& state, int most_ms, bool& came) {
    char byte = 0;
    switch (state.NextByte(byte, most_ms)) {
        case State::InputEvent::kByte: state.keys.Take(byte); return came = true;
        case State::InputEvent::kNone: came = false; return true;
        case State::InputEvent::kWoken: state.why = LineEditor::How::kInterrupted; return false;
        case State::InputEvent::kEnd: state.why = LineEditor::How::kEnd; return false;
    }
    return false;
}

template <typename State>
int ReadCharacter(EditLine* edit, wchar_t* out) {
    auto& state = StateOf<State>(edit);
    for (;;) {
        if (state.keys.pasting()) {
            *out = kPasteKey;
            return 1;
        }
        if (const auto key = state.keys.Next()) {
            if (key->kind != TerminalKeys::Kind::kCharacter) continue;
            *out = static_cast<wchar_t>(key->character);
            return 1;
        }
        const bool may_be_key = state.keys.escaped() && EscapeIsKey(edit);
        bool came = false;
        if (!TakeByte(state, may_be_key ? kEscapeMs : -1, came)) {
            errno = state.why == LineEditor::How::kInterrupted ? EINTR : 0;
            return -1;
        }
        if (!came) state.keys.Decide();
    }
}

// Inserts pasted text with its newlines and tabs, as far as it has arrived. If the terminal pauses,
// the line is shown, and ReadCharacter makes libedit call again.
template <typename State>
unsigned char Paste(EditLine* edit, int) {
    auto& state = StateOf<State>(edit);
    if (!state.keys.pasting()) return CC_ERROR;  // a keyboard has such a key
    std::wstring text;
    for (bool came = true; came;) {
        while (const auto key = state.keys.Next()) {
            if (key->kind == TerminalKeys::Kind::kCharacter) {
                text += static_cast<wchar_t>(key->character);
            } else if (key->kind == TerminalKeys::Kind::kPasteEnds) {
                came = false;
                break;
            }
        }
        if (came && !TakeByte(state, text.empty() ? -1 : kPauseMs, came)) return CC_EOF;
    }
    if (!text.empty() && ::el_winsertstr(edit, text.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
}

template <typename State>
char* PromptOf(EditLine* edit) {
    return StateOf<State>(edit).prompt.data();
}

// Sets a UTF-8 locale: libedit measures and writes characters in the locale's encoding, and
// terminals use UTF-8 even without a locale, as in containers. Returns false if there is no such
// locale.
bool SetUtf8() {
    for (const char* name : {"", "C.UTF-8", "en_US.UTF-8"}) {
        const bool set = std::setlocale(LC_CTYPE, name) != nullptr;
        if (set && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0) return true;
    }
    return false;
}

// A history with the lines of the file. Another kind of file (a pipe) is not opened.
History* MakeHistory(const std::string& path) {
    History* history = ::history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, LineEditor::kMostHistory);
    ::history(history, &event, H_SETUNIQUE, 1);
    constexpr off_t kMostBytes =
        4 * off_t{LineEditor::kMostHistoryLine} * LineEditor::kMostHistory;  // with escapes
    struct stat found {};
    const bool sound = !path.empty() && ::stat(path.c_str(), &found) == 0 &&
                       S_ISREG(found.st_mode) && found.st_size <= kMostBytes;
    if (sound) ::history(history, &event, H_LOAD, path.c_str());
    return history;
}

// Adds a line to the file, beside the lines of other sessions. If writing fails, only this line is
// lost.
void KeepLine(const std::string& path, const std::string& line) {
    if (path.empty() || line.starts_with(' ') || line.size() > LineEditor::kMostHistoryLine) return;
    const auto lock = FileLock::Take(path, kHistoryLockMs);
    if (!lock.ok()) return;
    const auto fresh = CreatePrivateFile(path);
    if (!fresh.ok()) return;
    History* const history = MakeHistory(path);
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
    const bool saved = ::history(history, &event, H_SAVE, fresh->c_str()) >= 0 &&
                       std::rename(fresh->c_str(), path.c_str()) == 0;
    if (!saved) ::unlink(fresh->c_str());
    ::history_end(history);
}

}  // namespace

void LineEditor::State::HeedSignals() {
    if (!signals) return;
    if (signals->TakeStopping()) {
        if (escapes) Stream(kPasteModeOff);
        ::el_set(edit, EL_PREP_TERM, 0);
        signals->Stop();
    }
    const bool continued = signals->TakeContinued(), resized = signals->TakeResized();
    if (!continued && !resized) return;
    if (continued) {
        // A shell has changed the terminal's settings. (libedit skips a terminal that it considers
        // prepared.)
        ::el_set(edit, EL_PREP_TERM, 0);
        ::el_set(edit, EL_PREP_TERM, 1);
        Stream(escapes ? fmt::format("{}\r\033[J", kPasteModeOn) : "\n");
    } else {
        Stream(ToFirstRow(edit, prompt, escapes));
    }
    if (resized) ::el_resize(edit);
    ::el_set(edit, EL_REFRESH);
}

void LineEditor::State::ShowAgain() {
    if (edit == nullptr) return ShowPrompt();
    ::el_set(edit, EL_REFRESH);
    NotePrompt(true);
}

LineEditor::LineEditor(const std::atomic<bool>* stop, const std::string& history)
    : state_(std::make_unique<State>()) {
    state_->stop = stop;
    state_->history_path = ThroughLinks(history);
    if (!SetUtf8()) return;
    EditLine* edit = state_->edit = ::el_init("weft", stdin, stdout, stderr);
    if (edit == nullptr) return;
    state_->escapes = TakesEscapes(STDOUT_FILENO);
    ::el_set(edit, EL_CLIENTDATA, state_.get());
    ::el_set(edit, EL_GETCFN, &ReadCharacter<State>);
    ::el_set(edit, EL_PROMPT, &PromptOf<State>);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_SIGNAL, 0);
    ::el_set(edit, EL_ADDFN, "weft-paste", "Insert a pasted text", &Paste<State>);
    ::el_source(edit, nullptr);  // ~/.editrc
    ::el_set(edit, EL_BIND, "\t", "ed-insert", nullptr);
    ::el_set(edit, EL_BIND, kPasteKeyText, "weft-paste", nullptr);
    ::el_set(edit, EL_BIND, "-a", kPasteKeyText, "weft-paste", nullptr);
    state_->history = MakeHistory(state_->history_path);
    ::el_set(edit, EL_HIST, ::history, state_->history);
}

LineEditor::~LineEditor() {
    if (state_->history != nullptr) ::history_end(state_->history);
    if (state_->edit != nullptr) ::el_end(state_->edit);
    ::close(state_->woken);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
    state_->prompt = prompt;
    if (state_->edit == nullptr) return state_->ReadPlain();
    state_->why = How::kEnd;
    state_->keys = {};
    state_->signals.emplace();
    // (Otherwise libedit prepares the terminal after the prompt, and early input is shown twice.)
    ::el_set(state_->edit, EL_PREP_TERM, 1);
    if (state_->escapes) Stream(kPasteModeOn);
    NotePrompt(true);
    int count = 0;
    const char* got = ::el_gets(state_->edit, &count);
    if (state_->escapes) Stream(kPasteModeOff);
    NotePrompt(false);
    state_->signals.reset();
    if (got == nullptr || count <= 0) return {state_->why};
    std::string text(got, static_cast<size_t>(count));
    HistEvent event;
    if (text != "\n") ::history(state_->history, &event, H_ENTER, text.c_str());
    if (text != "\n") KeepLine(state_->history_path, text);
    // (Pasted text may end with newlines of its own.)
    while (text.ends_with('\n')) text.pop_back();
    return {How::kLine, std::move(text)};
}
#else
void LineEditor::State::HeedSignals() {}

void LineEditor::State::ShowAgain() {
    ShowPrompt();
}

LineEditor::LineEditor(const std::atomic<bool>* stop, const std::string&)
    : state_(std::make_unique<State>()) {
    state_->stop = stop;
}

LineEditor::~LineEditor() {
    ::close(state_->woken);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
    state_->prompt = prompt;
    return state_->ReadPlain();
}
#endif

void LineEditor::Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(state_->woken, &one, sizeof one);
}

void LineEditor::End() {
    state_->over = true;
    Wake();
}

}  // namespace weft::cli
