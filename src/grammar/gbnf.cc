#include "grammar/gbnf.h"

#include <map>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "grammar/builder.h"
#include "grammar/escapes.h"
#include "tokenizer/unicode.h"

namespace weft::grammar {
namespace {

constexpr uint32_t kMostRepeats = 10'000;
constexpr size_t kMostNameBytes = 200;

bool IsNameByte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

class GbnfParser {
  public:
    using Expr = GrammarBuilder::Expr;

    explicit GbnfParser(std::string_view text) : text_(text) {}

    Result<GrammarPtr> Run(const CompileLimits& limits) {
        if (text_.size() > kMostGbnfBytes) {
            return MakeError(ErrorCode::kUsage, "grammar: {} bytes; expected at most {}",
                             text_.size(), kMostGbnfBytes);
        }
        for (size_t at = 0; at < text_.size();) {
            const size_t length = CodePointLength(text_, at);
            if (length == 0) return At(at, "invalid UTF-8");
            at += length;
        }
        Blanks(true);
        while (at_ < text_.size()) WEFT_TRY(Rule());
        for (const auto& [name, rule] : rules_) {
            if (!rule.defined) return At(rule.used_at, "rule '{}' is not defined", name);
        }
        const auto root = rules_.find("root");
        if (root == rules_.end()) {
            return MakeError(ErrorCode::kUsage, "grammar: the start rule 'root' is missing");
        }
        return builder_.Build(root->second.rule, limits);
    }

  private:
    struct Named {
        GrammarBuilder::Rule rule;
        bool defined = false;
        size_t used_at = 0;
    };

    template <typename... Args>
    Error At(size_t at, fmt::format_string<Args...> format, Args&&... args) const {
        size_t line = 1, column = 1;
        for (size_t i = 0; i < at && i < text_.size(); ++i) {
            const bool ends = text_[i] == '\n';
            line += ends ? 1 : 0;
            const bool begins_point = (static_cast<uint8_t>(text_[i]) & 0xC0) != 0x80;
            column = ends ? 1 : column + (begins_point ? 1 : 0);
        }
        return MakeError(ErrorCode::kUsage, "grammar: line {}, column {}: {}", line, column,
                         fmt::format(format, std::forward<Args>(args)...));
    }

    // Describes the text at the cursor, for messages.
    std::string Here() const {
        if (at_ >= text_.size()) return "the end";
        if (text_[at_] == '\n' || text_[at_] == '\r') return "the end of the line";
        return fmt::format("'{}'", text_.substr(at_, CodePointLength(text_, at_)));
    }

    bool Ahead(std::string_view words) const { return text_.substr(at_).starts_with(words); }
    bool Take(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    // Skips spaces and comments; with `lines` also line ends.
    void Blanks(bool lines) {
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '#') {
                while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
                if (at_ >= text_.size()) return;
            }
            const bool end = text_[at_] == '\n' || text_[at_] == '\r';
            if (end ? !lines : text_[at_] != ' ' && text_[at_] != '\t') return;
        }
    }

    std::string_view Name() {
        const size_t begin = at_;
        while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
        return text_.substr(begin, at_ - begin);
    }

    Result<Named*> Find(std::string_view name, size_t at) {
        if (name.size() > kMostNameBytes) {
            return At(at, "a name has {} bytes; the limit is {}", name.size(), kMostNameBytes);
        }
        const auto [entry, added] = rules_.try_emplace(std::string(name));
        if (added) entry->second = {builder_.AddRule(std::string(name)), false, at};
        return &entry->second;
    }

    Status Rule() {
        const size_t begin = at_;
        const std::string_view name = Name();
        if (name.empty()) return At(at_, "expected a rule name, found {}", Here());
        Blanks(false);
        if (!Ahead("::=")) return At(at_, "expected '::=' after '{}', found {}", name, Here());
        at_ += 3;
        Blanks(true);
        WEFT_ASSIGN(Named* const rule, Find(name, begin));
        if (rule->defined) return At(begin, "rule '{}' is defined twice", name);
        rule->defined = true;
        WEFT_ASSIGN(const Expr body, Choice(0));
        builder_.Define(rule->rule, body);
        if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
            return At(at_, "expected the end of the line, found {}", Here());
        }
        Blanks(true);
        return {};
    }

    Result<Expr> Choice(int depth) {
        if (depth > GrammarBuilder::kMostNesting) {
            return At(at_, "parentheses nest deeper than {}", GrammarBuilder::kMostNesting);
        }
        std::vector<Expr> parts;
        do {
            if (!parts.empty()) Blanks(true);
            WEFT_ASSIGN(const Expr part, Sequence(depth));
            parts.push_back(part);
        } while (Take('|'));
        return builder_.Choice(std::move(parts));
    }

    Result<Expr> Sequence(int depth) {
        std::vector<Expr> parts;
        for (Blanks(depth > 0); at_ < text_.size(); Blanks(depth > 0)) {
            const char c = text_[at_];
            if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
            if (builder_.Full()) return At(at_, "the grammar is too large");
            WEFT_ASSIGN(const Expr element, Element(depth));
            WEFT_ASSIGN(const Expr repeated, Repeats(element, depth));
            parts.push_back(repeated);
        }
        return builder_.Sequence(std::move(parts));
    }

    Result<Expr> Element(int depth) {
        const size_t begin = at_;
        if (Take('"')) return String(begin);
        if (Take('[')) return Class(begin);
        if (Take('.')) return builder_.Points({{0, kMostPoint}});
        if (Take('(')) {
            WEFT_ASSIGN(const Expr body, Choice(depth + 1));
            if (!Take(')')) return At(at_, "expected ')', found {}", Here());
            return body;
        }
        const char c = text_[at_];
        if (c == '<' || c == '!') {
            return At(at_, "token references such as {} are not supported; write the token's text",
                      Here());
        }
        const std::string_view name = Name();
        if (name.empty()) {
            return At(at_, "expected a string, a class, '(', '.' or a rule, found {}", Here());
        }
        // "name ::=" here begins the next rule.
        WEFT_ASSIGN(const Named* const rule, Find(name, begin));
        return builder_.Call(rule->rule);
    }

    Result<Expr> String(size_t begin) {
        std::string bytes;
        while (!Take('"')) {
            if (at_ >= text_.size() || text_[at_] == '\n') {
                return At(begin, "a string is not terminated by '\"'");
            }
            WEFT_ASSIGN(const uint32_t point, Point());
            tokenizer::AppendPoint(point, bytes);
        }
        return builder_.Text(bytes);
    }

    Result<Expr> Class(size_t begin) {
        const bool negated = Take('^');
        PointSet set;
        while (!Take(']')) {
            if (at_ >= text_.size() || text_[at_] == '\n') {
                return At(begin, "a class is not terminated by ']'");
            }
            const size_t range_at = at_;
            WEFT_ASSIGN(const uint32_t low, Point());
            uint32_t high = low;
            if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
                ++at_;
                WEFT_ASSIGN(high, Point());
            }
            if (low > high) return At(range_at, "a range's end is below its start");
            set.push_back({low, high});
        }
        return builder_.Points(negated ? Complement(std::move(set)) : std::move(set));
    }

    // Reads one character or escape of a string or class.
    Result<uint32_t> Point() {
        if (text_[at_] != '\\') {
            const uint32_t point = tokenizer::PointAt(text_, at_);
            at_ += CodePointLength(text_, at_);
            return point;
        }
        const size_t begin = at_++;
        const char c = at_ < text_.size() ? text_[at_] : '\0';
        ++at_;
        switch (c) {
            case 'n': return uint32_t{'\n'};
            case 'r': return uint32_t{'\r'};
            case 't': return uint32_t{'\t'};
            case '\\':
            case '"':
            case '[':
            case ']': return static_cast<uint32_t>(c);
            case 'x': return Hex(begin, 2);
            case 'u': return Hex(begin, 4);
            case 'U': return Hex(begin, 8);
            default:
                return At(begin,
                          "unknown escape; supported: \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH "
                          "\\UHHHHHHHH");
        }
    }

    Result<uint32_t> Hex(size_t begin, size_t digits) {
        const auto point = HexNumber(text_, at_, digits);
        if (!point) return At(begin, "the escape needs {} hexadecimal digits", digits);
        if (!IsPoint(*point)) return At(begin, "U+{:04X} is not a character", *point);
        at_ += digits;
        return *point;
    }

    // Reads the repetitions after an element: any of * + ? {m} {m,} {m,n}.
    Result<Expr> Repeats(Expr element, int depth) {
        for (int count = 0;; ++count) {
            Blanks(depth > 0);
            const size_t begin = at_;
            uint32_t least = 0, most = GrammarBuilder::kNoLimit;
            if (Take('+')) {
                least = 1;
            } else if (Take('?')) {
                most = 1;
            } else if (Take('{')) {
                WEFT_TRY(Counts(begin, least, most));
            } else if (!Take('*')) {
                return element;
            }
            if (count >= 4) return At(begin, "an element has more than 4 repetitions");
            element = builder_.Repeat(element, least, most);
        }
    }

    Status Counts(size_t begin, uint32_t& least, uint32_t& most) {
        Blanks(true);
        WEFT_ASSIGN(least, Count());
        most = least;
        Blanks(true);
        if (Take(',')) {
            Blanks(true);
            most = GrammarBuilder::kNoLimit;
            if (at_ < text_.size() && text_[at_] != '}') {
                WEFT_ASSIGN(most, Count());
            }
            Blanks(true);
        }
        if (!Take('}')) return At(at_, "expected '}}', found {}", Here());
        if (least > most)
            return At(begin, "the minimum {} of a repetition is above its maximum {}", least, most);
        return {};
    }

    Result<uint32_t> Count() {
        const size_t begin = at_;
        const auto count = DecimalNumber(text_, at_, kMostRepeats);
        if (!count)
            return At(begin, "expected a count of at most {}, found {}", kMostRepeats, Here());
        return *count;
    }

    std::string_view text_;
    size_t at_ = 0;
    GrammarBuilder builder_;
    std::map<std::string, Named, std::less<>> rules_;
};

}  // namespace

Result<GrammarPtr> GrammarFromGbnf(std::string_view text, const CompileLimits& limits) {
    return GbnfParser(text).Run(limits);
}

}  // namespace weft::grammar
