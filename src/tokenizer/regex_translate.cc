// Translates Oniguruma's dialect to PCRE2's. Copies constructs with the same meaning and rewrites
// the others. PCRE2 validates the result.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace weft::tokenizer {
namespace {

// Contents of character classes. Oniguruma's \w is Alphabetic, marks, decimal digits, connectors
// and, outside of classes, the other numbers of Latin-1.
constexpr std::string_view kSpaces = WEFT_REGEX_SPACES;
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view kWordInClass =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

constexpr std::string_view kLatinNumbers = R"(\xB2\xB3\xB9\xBC-\xBE)";

class Translator {
  public:
    explicit Translator(std::string_view pattern) : in_(pattern) {}

    Result<std::string> Run() {
        while (at_ < in_.size()) {
            const char c = in_[at_];
            if (c == '\\') {
                atom_ = out_.size();
                WEFT_TRY(Escape(false));
            } else if (c == '[') {
                atom_ = out_.size();
                WEFT_TRY(Class());
            } else if (c == '(') {
                WEFT_TRY(Open());
            } else if (c == ')') {
                if (!groups_.empty()) {
                    atom_ = groups_.back();
                    groups_.pop_back();
                }
                Copy(1);
            } else if (c == '{' && CountLength() > 0) {
                Count();
            } else if (c == '$') {
                out_ += R"((?=\n|\z))";
                ++at_;
            } else if (c == '^') {
                out_ += R"((?<![^\n]))";
                ++at_;
            } else {
                if (c != '*' && c != '+' && c != '?' && c != '|') atom_ = out_.size();
                Copy(std::max<size_t>(CodePointLength(in_, at_), 1));
            }
        }
        return std::move(out_);
    }

  private:
    Error Refuse(std::string_view what) const {
        return MakeError(ErrorCode::kUnsupported, "regular expression '{}': {} is not supported",
                         in_.substr(0, 400), what);
    }

    void Copy(size_t count) {
        out_ += in_.substr(at_, count);
        at_ += count;
    }

    bool Ahead(std::string_view words) const { return in_.substr(at_).starts_with(words); }

    // A comment or an Oniguruma-specific group would have another meaning in PCRE2.
    Status Open() {
        for (const std::string_view own : {"(?~", "(?#", "(*", "(?{"}) {
            if (Ahead(own)) return Refuse(own);
        }
        groups_.push_back(out_.size());
        atom_ = out_.size();
        Copy(1);
        return {};
    }

    // Length of a counted repeat such as {1,3} at the cursor; 0: a literal brace.
    size_t CountLength() const {
        size_t end = at_ + 1;
        while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) {
            ++end;
        }
        const bool digits = end > at_ + 1 && in_[at_ + 1] != ',';
        return digits && end < in_.size() && in_[end] == '}' ? end + 1 - at_ : 0;
    }

    // x{1,3}+ means (x{1,3})+ here; PCRE2 would treat the plus as possessive.
    void Count() {
        Copy(CountLength());
        if (at_ >= in_.size() || in_[at_] != '+') return;
        out_.insert(atom_, "(?:");
        out_ += ")+";
        ++at_;
    }

    // Copies \uHHHH as \x{HHHH}; false if four digits are missing.
    bool Unicode() {
        if (in_.size() < at_ + 6) return false;
        const std::string_view digits = in_.substr(at_ + 2, 4);
        if (digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) return false;
        out_ += R"(\x{)" + std::string(digits) + '}';
        at_ += 6;
        return true;
    }

    Status Escape(bool in_class) {
        if (at_ + 1 >= in_.size()) return Refuse("a backslash at the end");
        const char c = in_[at_ + 1];
        const auto set = [&](std::string_view inside, bool negated) {
            if (!in_class) out_ += negated ? "[^" : "[";
            out_ += inside;
            if (!in_class) out_ += ']';
            at_ += 2;
        };
        const std::string word = std::string(kWordInClass) + std::string(kLatinNumbers);
        switch (c) {
            case 's': set(kSpaces, false); return {};
            case 'S': set(in_class ? kNotSpaces : kSpaces, !in_class); return {};
            case 'd': set(R"(\p{Nd})", false); return {};
            case 'D': set(in_class ? R"(\P{Nd})" : R"(\p{Nd})", !in_class); return {};
            case 'w': set(in_class ? kWordInClass : word, false); return {};
            case 'h': set("0-9a-fA-F", false); return {};
            case 'W':
                if (in_class) return Refuse("\\W inside a class");
                set(word, true);
                return {};
            case 'b':
                if (in_class) {
                    Copy(2);
                    return {};
                }
                out_ += "(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word +
                        "]))";
                at_ += 2;
                return {};
            case 'u':
                if (!Unicode()) return Refuse("\\u without four hexadecimal digits");
                return {};
            case 'B':
            case 'G':
            case 'H':
            case 'K':
            case 'M':
            case 'C':
            case 'Q':
            case 'E':
            case 'O':
            case 'y':
            case 'Y': return Refuse(in_.substr(at_, 2));
            case 'p':
            case 'P': Property(); return {};
            default: Copy(1 + std::max<size_t>(CodePointLength(in_, at_ + 1), 1)); return {};
        }
    }

    // Copies \p{...}; replaces long category names that PCRE2 does not support.
    void Property() {
        static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
            {"Letter", "L"},
            {"Mark", "M"},
            {"Number", "N"},
            {"Punctuation", "P"},
            {"Symbol", "S"},
            {"Separator", "Z"},
            {"Uppercase_Letter", "Lu"},
            {"Lowercase_Letter", "Ll"},
            {"IsHan", "Han"}};
        const size_t close = in_.find('}', at_);
        if (close == in_.npos || at_ + 3 > close || in_[at_ + 2] != '{') return Copy(2);
        std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
        out_ += in_.substr(at_, 3);
        if (name.starts_with('^')) {
            out_ += '^';
            name.remove_prefix(1);
        }
        for (const auto& [known, short_name] : kNames) {
            if (name == known) name = short_name;
        }
        // A bare script name would also match characters shared with other scripts in PCRE2.
        static constexpr std::string_view kBinary[] = {"Any",   "Alphabetic", "White_Space",
                                                       "Emoji", "Uppercase",  "Lowercase"};
        const bool script =
            name.size() > 2 && name.find_first_of(":=") == name.npos &&
            std::find(std::begin(kBinary), std::end(kBinary), name) == std::end(kBinary);
        out_ += (script ? "sc:" : "") + std::string(name) + '}';
        at_ = close + 1;
    }

    // Translates a class. Nested sets are merged into it; [a&&[^b]] becomes a look-ahead.
    Status Class() {
        const size_t begin = out_.size();
        WEFT_TRY(ClassBody(0));
        if (!and_) return {};
        and_ = false;
        if (!Ahead("[^")) return Refuse("'&&' other than [...&&[^...]]");
        const std::string left = out_.substr(begin);
        out_.resize(begin);
        WEFT_TRY(ClassBody(1));
        if (and_) return Refuse("more than one '&&' in a class");
        std::string right = out_.substr(begin + 2);  // without the leading [^
        out_.resize(begin);
        if (!Ahead("]")) return Refuse("'&&' other than [...&&[^...]]");
        ++at_;
        out_ += "(?:(?![" + right + ")" + left + "])";
        return {};
    }

    // Copies the class at the cursor through its ']', or through '&&', which sets and_.
    Status ClassBody(int depth) {
        const bool negated = Ahead("[^");
        if (depth > 1) {
            if (negated) return Refuse("a negated set inside a class");
            ++at_;
        } else {
            Copy(negated ? 2 : 1);
        }
        for (bool first = true; at_ < in_.size(); first = false) {
            const char c = in_[at_];
            if (c == ']' && !first) {
                if (depth > 1) {
                    ++at_;
                } else {
                    Copy(1);
                }
                return {};
            }
            if (c == '\\') {
                WEFT_TRY(Escape(true));
            } else if (Ahead("&&")) {
                if (depth != 0 || negated) return Refuse("'&&' other than [...&&[^...]]");
                and_ = true;
                at_ += 2;
                return {};
            } else if (Ahead("[:")) {
                const size_t close = in_.find(":]", at_ + 2);
                if (close == in_.npos) return Refuse("'[:' without ':]'");
                Copy(close + 2 - at_);
            } else if (c == '[') {
                if (depth > 8) return Refuse("nesting of classes this deep");
                WEFT_TRY(ClassBody(depth < 2 ? 2 : depth + 1));
            } else {
                Copy(std::max<size_t>(CodePointLength(in_, at_), 1));
            }
        }
        return Refuse("an unterminated class");
    }

    std::string_view in_;
    size_t at_ = 0;
    std::string out_;
    std::vector<size_t> groups_;  // offset in out_ of each open group
    size_t atom_ = 0;             // offset in out_ of the last repeatable item
    bool and_ = false;            // ClassBody stopped after '&&'
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern) {
    if (!IsUtf8(pattern)) {
        return MakeError(ErrorCode::kCorrupt, "a regular expression that is not UTF-8");
    }
    return Translator(pattern).Run();
}

}  // namespace weft::tokenizer
