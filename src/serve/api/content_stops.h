// Stop strings for an answer parsed by chat::AnswerParser. Stop strings match in the content only,
// not in reasoning or tool calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "chat/answer.h"
#include "engine/stop.h"

namespace weft::serve {

class ContentStops {
  public:
    // includes: the content contains the stop string.
    explicit ContentStops(std::vector<std::string> stops, bool includes = false)
        : matcher_(std::move(stops), includes) {}

    // Reduces `delta` to what may be sent now. Once a stop string is found, stopped() is true, the
    // content ends before it (includes: with it), and all later deltas become empty. ends: whether
    // a stop string may end in the delta.
    void Cut(chat::AnswerDelta& delta, bool ends = true) {
        if (stopped()) {
            delta = {};
            return;
        }
        delta.content = matcher_.Push(delta.content, ends);
        if (stopped()) {
            delta.tool_calls.clear();
            delta.call_parts.clear();
        } else if (!delta.tool_calls.empty() || !delta.call_parts.empty()) {
            delta.content += matcher_.Flush();  // no stop string reaches across a call
        }
    }
    // At the end of the answer: returns the content that was held back.
    std::string Flush() { return matcher_.Flush(); }
    bool stopped() const { return matcher_.stopped(); }
    // The stop string that was found, or empty.
    const std::string& found() const { return matcher_.found(); }

  private:
    engine::StopMatcher matcher_;
};

}  // namespace weft::serve
