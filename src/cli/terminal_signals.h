// What happens to a terminal while a line is edited there: it gets another size, or its program is
// stopped (Ctrl-Z) and goes on. The handlers leave marks; who reads looks at them.
#pragma once

#include <csignal>

namespace weft::cli {

// In force as long as the object lives: one at a time in a process. Then signals do what they did.
class TerminalSignals {
  public:
    TerminalSignals();
    // A stop that was asked for and not seen yet happens here.
    ~TerminalSignals();
    TerminalSignals(const TerminalSignals&) = delete;
    TerminalSignals& operator=(const TerminalSignals&) = delete;

    // Since the last call.
    bool TakeResized();
    bool TakeStopping();
    bool TakeContinued();
    // Stops the process until somebody has it go on. Where no shell is there that could, as in a
    // container, nothing happens. TakeContinued is true afterwards.
    void Stop();

  private:
    void Set();

    struct sigaction resized_ {};
    struct sigaction stopping_ {};
    struct sigaction continued_ {};
};

}  // namespace weft::cli
