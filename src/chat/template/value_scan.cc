#include "chat/template/value_scan.h"

namespace weft::chat {

void ValueScan::Feed(std::string_view text) {
    for (const char c : text) {
        ++fed_;
        Take(c);
    }
}

bool ValueScan::QuoteEnds(char c) {
    const std::string_view quote = style_ == Style::kGemma ? "<|\"|>" : "<escape>";
    if (c != quote[matched_]) matched_ = 0;
    if (c == quote[matched_]) ++matched_;
    if (matched_ < quote.size()) return false;
    matched_ = 0;
    return true;
}

void ValueScan::Take(char c) {
    if (style_ == Style::kGemma || style_ == Style::kEscape) {
        if (QuoteEnds(c)) quote_ = inside() ? '\0' : 'g';
        return;
    }
    if (inside()) {
        if (!escaped_ && c == quote_) quote_ = '\0';
        escaped_ = inside() && !escaped_ && c == '\\';
        return;
    }
    const bool list = c == '[' && (style_ == Style::kPython || !other_ || depth_ > 0);
    if (c == '{' || list) {
        ++depth_;
    } else if (depth_ > 0 && (c == '}' || c == ']')) {
        if (--depth_ == 0 && end_ == 0) end_ = fed_;
    } else if (depth_ > 0 && (c == '"' || (c == '\'' && style_ == Style::kPython))) {
        quote_ = c;
    } else if (style_ == Style::kPython && (c == '(' || c == ')')) {
        depth_ += c == '(' ? 1 : depth_ > 0 ? -1 : 0;
    }
    other_ = other_ || (c != ' ' && c != '\t' && c != '\r' && c != '\n');
}

}  // namespace weft::chat
