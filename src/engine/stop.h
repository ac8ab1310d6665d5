// Finds stop strings in streamed text: holds back text that may become a stop string, and ends the
// text before a complete one.
//
// The stop string that ends first in the text counts; if several end at the same place, the
// longest. The shown text thus does not depend on how the text was split into pieces, and contains
// all or no part of the stop string. Input and output are whole code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::engine {

class StopMatcher {
  public:
    // Ignores empty strings. includes: the shown text contains the stop string.
    explicit StopMatcher(std::vector<std::string> stops, bool includes = false);
    // Returns the text that may be shown now. When a stop string is found, Push returns the text
    // before it (includes: up to its end), stopped() becomes true, and further text is dropped.
    // ends: whether a stop string may end in `text`.
    std::string Push(std::string_view text, bool ends = true);
    // Call at the end of the text: returns the text that was held back.
    std::string Flush();
    bool stopped() const { return stopped_; }
    // The stop string that was found; empty if none was.
    const std::string& found() const { return found_; }

  private:
    std::vector<std::string> stops_;
    bool includes_;
    std::string held_;  // start of a possible stop string
    std::string found_;
    bool stopped_ = false;
};

}  // namespace weft::engine
