// The arguments of a tool call, out of its text as it comes: {"name": "f", "arguments": {...}} (or
// "parameters"), in this order. A call in any other form is none for it, and is read when it is
// whole (answer_calls.h).
// Bounds: a name, and what is before the arguments, have at most kMostHeadBytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::chat {

class CallStream {
  public:
    static constexpr size_t kMostHeadBytes = 4096;

    // body: the call's text so far, from its begin; it only grows. Appends to `arguments` what is
    // new of them, as the model wrote it; line ends and tabs in texts are escaped, as JSON wants.
    void Take(std::string_view body, std::string& arguments);
    // The name is known, and the arguments have begun.
    bool begun() const { return state_ != State::kHead && state_ != State::kOther; }
    // All of the arguments are there.
    bool done() const { return state_ == State::kDone; }
    const std::string& name() const { return name_; }

  private:
    enum class State { kHead, kArguments, kDone, kOther };
    State state_ = State::kHead;
    std::string name_;
    size_t at_ = 0;  // of the body, what was taken
    int depth_ = 0;
    bool in_text_ = false, escaped_ = false;
};

}  // namespace weft::chat
