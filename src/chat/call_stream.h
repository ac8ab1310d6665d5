// Extracts the arguments from the text of a call while the text arrives: {"name": "f", "arguments":
// {...}} (or "parameters"), in this order. Calls in other formats are parsed when complete
// (answer_calls.h). Limit: the name and the text before the arguments have at most kMostHeadBytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "chat/json_repair.h"

namespace weft::chat {

class CallStream {
  public:
    static constexpr size_t kMostHeadBytes = 4096;

    // body: the text of the tool call so far, longer each time. Appends the new bytes of the
    // arguments as the model wrote them, repaired as JsonRepair does.
    void Take(std::string_view body, std::string& arguments);
    // Appends what Take held back, if the arguments are cut off.
    void End(std::string& arguments) {
        if (begun() && !done()) repair_.End(arguments);
    }
    // Whether the name is known and the arguments have begun.
    bool begun() const { return state_ != State::kHead && state_ != State::kOther; }
    // Whether the arguments are complete.
    bool done() const { return state_ == State::kDone; }
    // Offset in the body after the arguments so far.
    size_t at() const { return at_; }
    const std::string& name() const { return name_; }

  private:
    enum class State { kHead, kArguments, kDone, kOther };
    State state_ = State::kHead;
    std::string name_;
    size_t at_ = 0;  // bytes of the body consumed so far
    int depth_ = 0;
    JsonRepair repair_;
};

}  // namespace weft::chat
