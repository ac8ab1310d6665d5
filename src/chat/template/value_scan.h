// Tracks brackets and quotes in a call's text as it arrives, to determine whether an end marker
// would be inside a string, and where the call's JSON ends. Constant memory.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::chat {

class ValueScan {
  public:
    enum class Style {
        kJson,    // strings in double quotes
        kPython,  // strings in single or double quotes
        kGemma,   // strings between <|"|>
        kEscape,  // strings between <escape>
    };
    ValueScan() = default;
    explicit ValueScan(Style style) : style_(style) {}

    // Feeds the next piece of text, of any size.
    void Feed(std::string_view text);
    // Whether the text so far ends inside a string.
    bool inside() const { return quote_ != '\0'; }
    // Whether the first bracketed value is complete. The value begins at the first "{", or at a "["
    // preceded by white space only.
    bool done() const { return end_ > 0; }
    // Offset after that value.
    size_t end() const { return end_; }

  private:
    void Take(char c);
    bool QuoteEnds(char c);  // of Gemma's markers

    Style style_ = Style::kJson;
    size_t fed_ = 0, end_ = 0;
    size_t matched_ = 0;  // bytes of Gemma's marker matched so far
    int depth_ = 0;
    char quote_ = '\0';
    // other_: a character other than white space and brackets was seen
    bool escaped_ = false, other_ = false;
};

}  // namespace weft::chat
