// Trims white space around parts that are removed from an answer's text.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace weft::chat {

// Passes text on. White space at the end is held back until more text follows; white space at the
// beginning is dropped only after Cut(). One blank replaces a part removed between two texts: a
// line break if the white space around the part has one, else a space.
class Stretch {
  public:
    void Add(std::string_view text, std::string& out) {
        if (at_begin_) {
            const size_t begin = text.find_first_not_of(kBlanks);
            breaks_ = breaks_ || text.substr(0, begin).find('\n') != text.npos;
            if (begin == text.npos) return;
            text.remove_prefix(begin);
            at_begin_ = false;
            if (has_text_) out += breaks_ ? '\n' : ' ';
        }
        const size_t last = text.find_last_not_of(kBlanks);
        if (last == text.npos) {
            blanks_ += text;
            return;
        }
        out += std::exchange(blanks_, {});
        out += text.substr(0, last + 1);
        blanks_ = text.substr(last + 1);
        has_text_ = true;
    }
    // Marks a removed part: drops white space on both sides.
    void Cut() {
        breaks_ = (at_begin_ && breaks_) || blanks_.find('\n') != blanks_.npos;
        blanks_.clear();
        at_begin_ = true;
    }
    void End(std::string& out) { out += std::exchange(blanks_, {}); }

  private:
    static constexpr std::string_view kBlanks = " \t\r\n";

    bool at_begin_ = false;
    bool has_text_ = false;  // text was passed on before the removed part
    bool breaks_ = false;    // the white space around the removed part has a line break
    std::string blanks_;
};

}  // namespace weft::chat
