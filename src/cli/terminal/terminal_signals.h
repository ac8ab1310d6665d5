// Handles terminal events while a line is edited: a new size, and a stop (Ctrl-Z) with its
// continuation. The signal handlers set marks; the reader checks them.
#pragma once

#include <csignal>

namespace weft::cli {

// Active while the object lives, one per process. The destructor restores the previous handlers.
class TerminalSignals {
  public:
    TerminalSignals();
    // Executes a stop that was requested and not handled yet.
    ~TerminalSignals();
    TerminalSignals(const TerminalSignals&) = delete;
    TerminalSignals& operator=(const TerminalSignals&) = delete;

    // Returns the mark and clears it.
    bool TakeResized();
    bool TakeStopping();
    bool TakeContinued();
    // Stops the process until it is continued. Does nothing if no shell could continue it, as in a
    // container. TakeContinued is true afterwards.
    void Stop();

  private:
    void Set();

    struct sigaction resized_ {};
    struct sigaction stopping_ {};
    struct sigaction continued_ {};
};

}  // namespace weft::cli
