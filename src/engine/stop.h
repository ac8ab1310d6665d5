// Stop strings over streamed text: holds back what may become a stop string, and cuts there.
//
// The stop string that is complete first counts; of several complete at once, the longest. So what
// is shown does not depend on how the text was cut into pieces, and no part of the stop string is.
// Text in whole code points goes in and comes out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::engine {

class StopMatcher {
  public:
    // Empty strings are ignored.
    explicit StopMatcher(std::vector<std::string> stops);
    // The text that may be shown now. After a stop string was found: what came before it, and
    // stopped() is true; further text is swallowed.
    std::string Push(std::string_view text);
    // The end of the text: what was held back.
    std::string Flush();
    bool stopped() const { return stopped_; }
    // The stop string that was found; empty before.
    const std::string& found() const { return found_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;  // the start of a possible stop string
    std::string found_;
    bool stopped_ = false;
};

}  // namespace weft::engine
