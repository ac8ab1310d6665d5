// Reads lines from a terminal: with editing and history if Weft was built with libedit, otherwise
// as the terminal delivers them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace weft::cli {

// Thread: Read on one; Wake and End on any, also from signal handlers.
class LineEditor {
  public:
    static constexpr int kMostHistory = 1000;
    static constexpr size_t kMostHistoryLine = 4096;  // bytes of a line in the file

    // stop: when set, the input has ended. history: file that stores the lines of earlier sessions
    // (mode 0600; at most kMostHistory lines, none that begins with a space); "": no file.
    LineEditor(const std::atomic<bool>* stop, const std::string& history);
    ~LineEditor();
    LineEditor(const LineEditor&) = delete;
    LineEditor& operator=(const LineEditor&) = delete;

    enum class How { kLine, kInterrupted, kEnd };
    struct Line {
        How how = How::kEnd;
        std::string text{};  // without its newline
    };
    // kInterrupted: Wake was called during the wait. kEnd: Ctrl-D in an empty line, the terminal
    // has closed, or End was called.
    Line Read(const std::string& prompt);
    void Wake();
    void End();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace weft::cli
