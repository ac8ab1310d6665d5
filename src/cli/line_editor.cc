#include "cli/line_editor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <string_view>

#ifdef WEFT_HAS_LIBEDIT
#include <histedit.h>
#endif

namespace weft::cli {

constexpr int kLookMs = 200;  // at `stop`

struct LineEditor::State {
    int woken = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<bool> over{false};
    const std::atomic<bool>* stop = nullptr;
    std::string prompt;
#ifdef WEFT_HAS_LIBEDIT
    EditLine* edit = nullptr;
    History* history = nullptr;
#endif

    enum class Came { kByte, kWoken, kEnd };
    // The next byte of standard input.
    Came NextByte(char& byte) {
        for (;;) {
            pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {woken, POLLIN, 0}};
            if (over || (stop != nullptr && stop->load())) return Came::kEnd;
            if (::poll(fds, 2, kLookMs) < 0 && errno != EINTR) return Came::kEnd;
            uint64_t count = 0;
            if (::read(woken, &count, sizeof count) > 0) return over ? Came::kEnd : Came::kWoken;
            if (fds[0].revents == 0) continue;
            const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
            if (got == 1) return Came::kByte;
            if (got == 0 || errno != EINTR) return Came::kEnd;
        }
    }
};

#ifdef WEFT_HAS_LIBEDIT
namespace {

LineEditor::How g_why;  // the last ReadCharacter gave none; of the one thread that reads

// A whole character, put together of its bytes.
template <typename State>
int ReadCharacter(EditLine* edit, wchar_t* out) {
    State* state = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &state);
    std::mbstate_t shift{};
    for (;;) {
        char byte = 0;
        const auto came = state->NextByte(byte);
        if (came != State::Came::kByte) {
            const bool woken = came == State::Came::kWoken;
            g_why = woken ? LineEditor::How::kInterrupted : LineEditor::How::kEnd;
            errno = woken ? EINTR : 0;
            return -1;
        }
        // What was Ctrl-D where it was typed before the terminal was this editor's.
        if (byte == '\0') byte = '\4';
        const size_t used = std::mbrtowc(out, &byte, 1, &shift);
        if (used == static_cast<size_t>(-2)) continue;
        if (used == static_cast<size_t>(-1)) {  // no character: passed over
            shift = {};
            continue;
        }
        return 1;
    }
}

template <typename State>
char* PromptOf(EditLine* edit) {
    State* state = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &state);
    return state->prompt.data();
}

}  // namespace

LineEditor::LineEditor(const std::atomic<bool>* stop) : state_(std::make_unique<State>()) {
    state_->stop = stop;
    std::setlocale(LC_CTYPE, "");
    state_->edit = ::el_init("weft", stdin, stdout, stderr);
    if (state_->edit == nullptr) return;
    ::el_set(state_->edit, EL_CLIENTDATA, state_.get());
    ::el_set(state_->edit, EL_GETCFN, &ReadCharacter<State>);
    ::el_set(state_->edit, EL_PROMPT, &PromptOf<State>);
    ::el_set(state_->edit, EL_EDITOR, "emacs");
    ::el_set(state_->edit, EL_SIGNAL, 0);
    ::el_source(state_->edit, nullptr);  // ~/.editrc
    state_->history = ::history_init();
    HistEvent event;
    ::history(state_->history, &event, H_SETSIZE, 1000);
    ::history(state_->history, &event, H_SETUNIQUE, 1);
    ::el_set(state_->edit, EL_HIST, ::history, state_->history);
}

LineEditor::~LineEditor() {
    if (state_->history != nullptr) ::history_end(state_->history);
    if (state_->edit != nullptr) ::el_end(state_->edit);
    ::close(state_->woken);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
    if (state_->edit == nullptr) return {};
    state_->prompt = prompt;
    g_why = How::kEnd;
    int count = 0;
    const char* got = ::el_gets(state_->edit, &count);
    if (got == nullptr || count <= 0) return {g_why};
    std::string text(got, static_cast<size_t>(count));
    HistEvent event;
    if (text != "\n") ::history(state_->history, &event, H_ENTER, text.c_str());
    if (text.ends_with('\n')) text.pop_back();
    return {How::kLine, std::move(text)};
}
#else
LineEditor::LineEditor(const std::atomic<bool>* stop) : state_(std::make_unique<State>()) {
    state_->stop = stop;
}

LineEditor::~LineEditor() {
    ::close(state_->woken);
}

LineEditor::Line LineEditor::Read(const std::string& prompt) {
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
    std::string text;
    for (;;) {
        char byte = 0;
        switch (state_->NextByte(byte)) {
            case State::Came::kWoken: return {How::kInterrupted};
            case State::Came::kEnd:
                if (text.empty()) return {};
                return {How::kLine, std::move(text)};
            case State::Came::kByte: break;
        }
        if (byte == '\n') return {How::kLine, std::move(text)};
        text += byte;
    }
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
