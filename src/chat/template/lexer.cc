#include "chat/template/lexer.h"

#include <algorithm>

#include "chat/template/letters.h"
#include "chat/template/meter.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

// Converts line ends to "\n" and drops one at the very end.
std::string Normalized(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (size_t at = 0; at < source.size(); ++at) {
        if (source[at] != '\r') {
            text += source[at];
            continue;
        }
        text += '\n';
        if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

bool IsDigit(char c) {
    return c >= '0' && c <= '9';
}

bool IsNameByte(char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<signed char>(c) < 0;
}

void AppendPoint(std::string& text, uint32_t point) {
    if (point < 0x80) {
        text += static_cast<char>(point);
        return;
    }
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kLead[more] | (point >> (6 * more)));
    for (int i = more; i-- > 0;) text += static_cast<char>(0x80 | ((point >> (6 * i)) & 0x3F));
}

constexpr std::string_view kLongOperators[] = {"//", "**", "==", "!=", ">=", "<="};
constexpr size_t kMostNameBytes = 1000;
constexpr std::string_view kOperators = "+-/*%~[](){}><=.:|,;";

class Lexer {
  public:
    explicit Lexer(std::string_view source) : text_(Normalized(source)) {}

    std::vector<Token> Run() {
        while (at_ < text_.size()) Outside();
        Add(TokenKind::kEnd, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void Fail(std::string_view what) const {
        throw Failure{MakeError(ErrorCode::kCorrupt, "chat template, line {}: {}", line_, what)};
    }

    void Add(TokenKind kind, std::string text) {
        tokens_.push_back({kind, std::move(text), line_});
    }

    bool At(std::string_view what) const { return text_.compare(at_, what.size(), what) == 0; }
    char Char(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

    void MoveTo(size_t to) {
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                             text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
        line_starting_ = to > at_ ? text_[to - 1] == '\n' : line_starting_;
        at_ = to;
    }

    size_t SkipSpaces(size_t at) const {
        while (at < text_.size() && IsSpace(PointAt(text_, at))) at = NextPoint(text_, at);
        return at;
    }

    // Adds the text [at_, end) before a tag with `sign` after its opening.
    void AddData(size_t end, char sign, bool variable) {
        std::string_view data(text_.data() + at_, end - at_);
        if (sign == '-') {
            Meter meter({});
            data = data.substr(0, Strip(meter, data, Ends::kRight, {}).end);
        } else if (sign != '+' && !variable) {
            const size_t line = data.rfind('\n') + 1;  // 0 if there is no line end
            const bool blank = SkipSpaces(at_ + line) >= end;
            if ((line > 0 || line_starting_) && blank) data = data.substr(0, line);
        }
        if (!data.empty()) Add(TokenKind::kData, std::string(data));
        MoveTo(end);
    }

    size_t NextTag() const {
        for (size_t at = at_; (at = text_.find('{', at)) != text_.npos; ++at) {
            const char next = Char(at + 1);
            if (next == '%' || next == '{' || next == '#') return at;
        }
        return text_.npos;
    }

    void Outside() {
        const size_t tag = NextTag();
        if (tag == text_.npos) return AddData(text_.size(), '+', true);
        const char kind = text_[tag + 1];
        const char sign = Char(tag + 2) == '-' || Char(tag + 2) == '+' ? text_[tag + 2] : '\0';
        AddData(tag, sign, kind == '{');
        MoveTo(tag + (sign == '\0' ? 2 : 3));
        if (kind == '#') return Comment();
        if (kind == '%' && Raw()) return;
        Add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
        Inside(kind == '%');
    }

    // Skips the end of a tag ("%}" or similar), with the white space that its sign and trim_blocks
    // remove. Returns false if at_ is not at the end of a tag.
    bool SkipEnd(std::string_view end, bool trims) {
        const size_t sign = Char(at_) == '-' || (Char(at_) == '+' && trims) ? 1 : 0;
        if (text_.compare(at_ + sign, end.size(), end) != 0) return false;
        size_t to = at_ + sign + end.size();
        if (sign == 1 && text_[at_] == '-') {
            to = SkipSpaces(to);
        } else if (sign == 0 && trims && Char(to) == '\n') {
            ++to;
        }
        MoveTo(to);
        return true;
    }

    void Comment() {
        for (;;) {
            const size_t end = text_.find("#}", at_);
            if (end == text_.npos) Fail("a comment lacks its end '#}'");
            const bool sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
            MoveTo(sign ? end - 1 : end);
            if (SkipEnd("#}", true)) return;
        }
    }

    // Reads {% raw %} ... {% endraw %}, starting after the opening of the first tag.
    bool Raw() {
        size_t at = SkipSpaces(at_);
        if (text_.compare(at, 3, "raw") != 0) return false;
        at = SkipSpaces(at + 3);
        const bool strips = text_.compare(at, 3, "-%}") == 0;
        if (!strips && text_.compare(at, 2, "%}") != 0) return false;
        MoveTo(strips ? SkipSpaces(at + 3) : at + 2);
        for (size_t tag = at_; (tag = text_.find("{%", tag)) != text_.npos; tag += 2) {
            const bool sign = Char(tag + 2) == '-' || Char(tag + 2) == '+';
            size_t name = SkipSpaces(tag + (sign ? 3 : 2));
            if (text_.compare(name, 6, "endraw") != 0) continue;
            name = SkipSpaces(name + 6);
            const bool end_sign = Char(name) == '-' || Char(name) == '+';
            if (text_.compare(name + (end_sign ? 1 : 0), 2, "%}") != 0) continue;
            AddData(tag, sign ? text_[tag + 2] : '\0', false);
            MoveTo(name);
            SkipEnd("%}", true);
            return true;
        }
        Fail("a raw block lacks its endraw");
    }

    void Inside(bool block) {
        std::string open;  // open brackets
        for (;;) {
            MoveTo(SkipSpaces(at_));
            if (at_ >= text_.size()) Fail("the template ends inside a tag");
            if (open.empty() && SkipEnd(block ? "%}" : "}}", block)) break;
            const char c = text_[at_];
            if (IsDigit(c)) {
                Number();
            } else if (IsNameByte(c)) {
                size_t end = at_;
                while (IsNameByte(Char(end))) ++end;
                // Names are limited because each look-up compares them.
                if (end - at_ > kMostNameBytes) Fail("a name is longer than 1000 bytes");
                Add(TokenKind::kName, text_.substr(at_, end - at_));
                MoveTo(end);
            } else if (c == '"' || c == '\'') {
                String(c);
            } else {
                Operator(open);
            }
        }
        Add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    }

    size_t Digits(size_t at) const {
        while (IsDigit(Char(at)) || (Char(at) == '_' && IsDigit(Char(at + 1)))) ++at;
        return at;
    }

    void Number() {
        size_t end = Digits(at_);
        TokenKind kind = TokenKind::kInteger;
        if (Char(end) == '.' && IsDigit(Char(end + 1))) {
            kind = TokenKind::kFloat;
            end = Digits(end + 1);
        }
        const size_t sign = Char(end + 1) == '+' || Char(end + 1) == '-' ? 1 : 0;
        if (Char(end) == 'e' && IsDigit(Char(end + 1 + sign))) {
            kind = TokenKind::kFloat;
            end = Digits(end + 1 + sign);
        }
        std::string digits = text_.substr(at_, end - at_);
        std::erase(digits, '_');
        Add(kind, std::move(digits));
        MoveTo(end);
    }

    void Operator(std::string& open) {
        std::string_view found;
        for (const std::string_view op : kLongOperators) {
            if (At(op)) found = op;
        }
        const size_t one = kOperators.find(text_[at_]);
        if (found.empty() && one == kOperators.npos) {
            Fail(fmt::format("unexpected character '{}'", text_[at_]));
        }
        if (found.empty()) found = kOperators.substr(one, 1);
        if (found == "(" || found == "[" || found == "{") open += found;
        if (found == ")" || found == "]" || found == "}") {
            const char opener = found == ")" ? '(' : found == "]" ? '[' : '{';
            if (open.empty() || open.back() != opener) Fail(fmt::format("unexpected '{}'", found));
            open.pop_back();
        }
        Add(TokenKind::kOperator, std::string(found));
        MoveTo(at_ + found.size());
    }

    void String(char quote) {
        std::string value;
        size_t at = at_ + 1;
        for (;; ++at) {
            if (at >= text_.size()) Fail("a string is not terminated");
            if (text_[at] == quote) break;
            if (text_[at] == '\\') {
                at = Escape(at + 1, value);
            } else {
                value += text_[at];
            }
        }
        Add(TokenKind::kString, std::move(value));
        MoveTo(at + 1);
    }

    // Decodes the escape after a backslash; returns the offset of its last byte.
    size_t Escape(size_t at, std::string& value) {
        constexpr std::string_view kShort = "abfnrtv\\'\"";
        constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
        const char c = Char(at);
        const size_t simple = kShort.find(c);
        if (at >= text_.size()) Fail("a string is not terminated");
        if (c == '\n') return at;
        if (simple != kShort.npos) {
            value += kMeaning[simple];
            return at;
        }
        if (c >= '0' && c <= '7') {
            size_t end = at;
            while (end < at + 3 && Char(end) >= '0' && Char(end) <= '7') ++end;
            AppendPoint(value, Code(at, end, 8));
            return end - 1;
        }
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (digits == 0) {
            value += '\\';
            value += c;
            return at;
        }
        AppendPoint(value, Code(at + 1, at + 1 + digits, 16));
        return at + digits;
    }

    uint32_t Code(size_t begin, size_t end, int base) const {
        const std::string digits = text_.substr(std::min(begin, text_.size()), end - begin);
        const bool all = digits.size() == end - begin &&
                         digits.find_first_not_of("0123456789abcdefABCDEF") == digits.npos;
        const unsigned long code = all ? std::stoul(digits, nullptr, base) : ~0UL;
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
            Fail("an escape in a string is not a valid character");
        }
        return static_cast<uint32_t>(code);
    }

    std::string text_;
    size_t at_ = 0;
    int line_ = 1;
    bool line_starting_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) {
    return Lexer(source).Run();
}

}  // namespace weft::chat::jinja
