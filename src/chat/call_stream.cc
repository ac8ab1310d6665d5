#include "chat/call_stream.h"

#include "base/json.h"

namespace weft::chat {
namespace {

// Reads the start of a call. After an error or the end of the text, every further step fails.
class Head {
  public:
    explicit Head(std::string_view text) : text_(text) {}

    bool Is(char wanted) {
        SkipBlanks();
        if (!good_ || ended()) return Stop();
        if (text_[at_] != wanted) return Fail();
        ++at_;
        return true;
    }
    // Reads a JSON string and decodes it.
    bool Text(std::string& out) {
        SkipBlanks();
        const size_t begin = at_;
        if (!Is('"')) return false;
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\') ++at_;
        }
        if (at_ >= text_.size()) return Stop();
        ++at_;
        const auto json = JsonOrDiscarded(text_.substr(begin, at_ - begin));
        if (!json.is_string()) return Fail();
        out = json.get<std::string>();
        return true;
    }
    void SkipBlanks() {
        while (!ended() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
            ++at_;
        }
    }
    bool ended() const { return at_ >= text_.size(); }
    bool Fail() {
        other_ = true;
        return Stop();
    }
    bool other() const { return other_; }
    size_t at() const { return at_; }

  private:
    bool Stop() {
        good_ = false;
        return false;
    }
    std::string_view text_;
    size_t at_ = 0;
    bool good_ = true, other_ = false;
};

// Offset of the arguments; npos: not yet, or never if `other` is set.
size_t FindArguments(std::string_view body, std::string& name, bool& other) {
    Head head(body);
    std::string key;
    bool found = head.Is('{') && head.Text(key);
    if (found && key != "name") found = head.Fail();
    found = found && head.Is(':') && head.Text(name) && head.Is(',') && head.Text(key);
    if (found && key != "arguments" && key != "parameters") found = head.Fail();
    found = found && head.Is(':');
    head.SkipBlanks();
    if (found && !head.ended() && body[head.at()] != '{') head.Fail();
    other = head.other() || name.size() > CallStream::kMostHeadBytes ||
            (!found && body.size() > CallStream::kMostHeadBytes);
    return found && !head.ended() && !other && !name.empty() ? head.at() : body.npos;
}

}  // namespace

void CallStream::Take(std::string_view body, std::string& arguments) {
    if (state_ == State::kHead) {
        bool other = false;
        at_ = FindArguments(body, name_, other);
        if (other) state_ = State::kOther;
        if (other || at_ == body.npos) return;
        state_ = State::kArguments;
    }
    for (; state_ == State::kArguments && at_ < body.size(); ++at_) {
        const char c = body[at_];
        repair_.Take(c, arguments);
        if (repair_.in_string()) continue;
        if (c == '{' || c == '[') {
            ++depth_;
        } else if ((c == '}' || c == ']') && --depth_ == 0) {
            state_ = State::kDone;
        }
    }
}

}  // namespace weft::chat
