// Text on its way out of an answer: blanks around what is taken out of it go, too.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace weft::chat {

// Blanks at its begin may go, those at its end wait for what follows.
class Stretch {
  public:
    void Add(std::string_view text, std::string& out) {
        if (at_begin_) {
            const size_t begin = text.find_first_not_of(kBlanks);
            if (begin == text.npos) return;
            text.remove_prefix(begin);
            at_begin_ = false;
        }
        const size_t last = text.find_last_not_of(kBlanks);
        if (last == text.npos) {
            blanks_ += text;
            return;
        }
        out += std::exchange(blanks_, {});
        out += text.substr(0, last + 1);
        blanks_ = text.substr(last + 1);
    }
    // A marker: blanks on both its sides go.
    void Cut() {
        blanks_.clear();
        at_begin_ = true;
    }
    void End(std::string& out) { out += std::exchange(blanks_, {}); }

  private:
    static constexpr std::string_view kBlanks = " \t\r\n";

    bool at_begin_ = false;
    std::string blanks_;
};

}  // namespace weft::chat
