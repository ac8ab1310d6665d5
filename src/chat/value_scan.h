// Follows the brackets and quotes of a call's text as it comes: whether its end marker would stand
// within a text (and be the text's), and where its JSON is closed. Constant memory.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::chat {

class ValueScan {
  public:
    enum class Style {
        kJson,    // texts in double quotes
        kPython,  // in single or double ones
        kGemma,   // between <|"|>
    };
    ValueScan() = default;
    explicit ValueScan(Style style) : style_(style) {}

    // All that comes, in pieces of any size.
    void Feed(std::string_view text);
    // Within a text.
    bool inside() const { return quote_ != '\0'; }
    // The first value, in brackets, is closed. It begins at the first "{", or at a "[" that
    // nothing but blanks is before.
    bool done() const { return end_ > 0; }
    // Bytes up to there.
    size_t end() const { return end_; }

  private:
    void Take(char c);
    bool GemmaQuote(char c);

    Style style_ = Style::kJson;
    size_t fed_ = 0, end_ = 0;
    size_t matched_ = 0;  // of Gemma's quote
    int depth_ = 0;
    char quote_ = '\0';
    bool escaped_ = false, other_ = false;  // other_: something but blanks and brackets was there
};

}  // namespace weft::chat
