#include "grammar/regex_grammar.h"

#include <string>

#include "base/utf8.h"
#include "grammar/escapes.h"
#include "grammar/json_text.h"
#include "tokenizer/unicode.h"

namespace weft::grammar {
namespace {

constexpr uint32_t kMostRegexCount = 10'000;
constexpr size_t kMostLookAheads = 16;

const PointSet kDigitClass = {{'0', '9'}};
const PointSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const PointSet kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                          {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const PointSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

void Append(PointSet& to, const PointSet& set) {
    to.insert(to.end(), set.begin(), set.end());
}

class RegexParser {
  public:
    using Expr = GrammarBuilder::Expr;

    RegexParser(std::string_view text, const RegexForm& form, GrammarBuilder& builder)
        : text_(text), form_(form), builder_(builder) {}

    Result<Expr> Run() {
        if (text_.size() > kMostRegexBytes) {
            return MakeError(ErrorCode::kUnsupported,
                             "regular expression: {} bytes; expected at most {}", text_.size(),
                             kMostRegexBytes);
        }
        if (!IsUtf8(text_)) {
            return MakeError(ErrorCode::kUsage, "regular expression: not valid UTF-8");
        }
        WEFT_ASSIGN(const Expr whole, Choice(0));
        if (at_ < text_.size()) return At(at_, "a ')' without its '('");
        return whole;
    }

  private:
    template <typename... Args>
    Error At(size_t at, fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kUsage, "regular expression '{}': byte {}: {}",
                         text_.size() > 200 ? "..." : text_, at,
                         fmt::format(format, std::forward<Args>(args)...));
    }

    // Error for constructs that are valid but not supported.
    template <typename... Args>
    Error Unsupported(size_t at, fmt::format_string<Args...> format, Args&&... args) const {
        Error error = At(at, format, std::forward<Args>(args)...);
        error.code = ErrorCode::kUnsupported;
        return error;
    }

    bool Ahead(std::string_view words) const { return text_.substr(at_).starts_with(words); }
    bool Take(std::string_view words) {
        if (!Ahead(words)) return false;
        at_ += words.size();
        return true;
    }

    // One character of the set, as written in the matched text.
    Expr Points(const PointSet& set) {
        const PointSet points = Normalized(set);
        return form_.json_string ? JsonStringPoints(points, builder_) : builder_.Points(points);
    }

    Expr Anything() {
        return builder_.Repeat(Points({{0, kMostPoint}}), 0, GrammarBuilder::kNoLimit);
    }

    Result<Expr> Choice(int depth) {
        if (depth > GrammarBuilder::kMostNesting) {
            return Unsupported(at_, "groups nest deeper than {}", GrammarBuilder::kMostNesting);
        }
        std::vector<Expr> parts;
        do {
            WEFT_ASSIGN(const Expr part, Sequence(depth));
            parts.push_back(part);
        } while (Take("|"));
        return builder_.Choice(std::move(parts));
    }

    // Parses one alternative; at the top level also its anchors.
    Result<Expr> Sequence(int depth) {
        std::vector<Expr> parts;
        const bool begins = depth == 0 && Take("^");
        bool ends = false;
        if (form_.search && !form_.begun && depth == 0 && !begins) parts.push_back(Anything());
        while (at_ < text_.size() && !Ahead("|") && !Ahead(")")) {
            if (depth == 0 && Take("$")) {
                ends = true;
                if (at_ < text_.size() && !Ahead("|"))
                    return Unsupported(at_ - 1, "'$' is supported only at the end");
                break;
            }
            if (builder_.Full()) return Unsupported(at_, "the expression is too large");
            WEFT_ASSIGN(const Expr atom, Atom(depth));
            WEFT_ASSIGN(const Expr repeated, Repeats(atom));
            parts.push_back(repeated);
        }
        if (form_.search && depth == 0 && !ends) parts.push_back(Anything());
        return builder_.Sequence(std::move(parts));
    }

    Result<Expr> Atom(int depth) {
        const size_t begin = at_;
        if (Take("(")) return Group(begin, depth);
        if (Take("[")) return Class(begin);
        if (Take(".")) return Points(Complement(kLineEnds));
        if (Ahead("\\")) {
            PointSet set;
            WEFT_TRY(Escape(false, set));
            return Points(set);
        }
        if (Ahead("^") || Ahead("$")) return Unsupported(at_, "'{}' inside", text_[at_]);
        if (Ahead("*") || Ahead("+") || Ahead("?")) {
            return At(at_, "nothing to repeat before '{}'", text_[at_]);
        }
        if (Ahead("{") && CountLength() > 0) return At(at_, "nothing to repeat before the count");
        if (Ahead("{,"))
            return Unsupported(at_, "'{{,' is ambiguous between dialects; use {{0,n}}");
        const uint32_t point = tokenizer::PointAt(text_, at_);
        at_ += CodePointLength(text_, at_);
        return Points({{point, point}});
    }

    Result<Expr> Group(size_t begin, int depth) {
        if (Take("?")) {
            if (Ahead("=") || Ahead("!")) return Unsupported(begin, "look-ahead is not supported");
            if (Ahead("<=") || Ahead("<!"))
                return Unsupported(begin, "look-behind is not supported");
            if (Ahead(">")) return Unsupported(begin, "atomic groups are not supported");
            if (Ahead("P=") || Ahead("P>"))
                return Unsupported(begin, "back-references are not supported");
            if (Take("<") || Take("P<")) {
                const size_t name = at_;
                while (at_ < text_.size() && text_[at_] != '>' && text_[at_] != ')') ++at_;
                if (at_ == name || !Take(">")) return At(begin, "a group has an empty name");
            } else if (!Take(":")) {
                return Unsupported(begin, "flags and groups of this kind are not supported");
            }
        } else if (Ahead("*")) {
            return Unsupported(begin, "verbs are not supported");
        }
        WEFT_ASSIGN(const Expr body, Choice(depth + 1));
        if (!Take(")")) return At(begin, "a '(' without its ')'");
        return body;
    }

    Result<Expr> Class(size_t begin) {
        const bool negated = Take("^");
        if (Ahead("]"))
            return Unsupported(
                begin, "a ']' at the start of a class is ambiguous between dialects; escape it");
        PointSet set;
        while (!Take("]")) {
            if (at_ >= text_.size()) return At(begin, "a '[' without its ']'");
            for (const std::string_view own : {"[:", "[.", "[=", "&&", "--", "[["}) {
                if (Ahead(own)) return Unsupported(at_, "'{}' in a class is not supported", own);
            }
            WEFT_TRY(Range(set));
        }
        return Points(negated ? Complement(std::move(set)) : std::move(set));
    }

    Status Range(PointSet& set) {
        const size_t begin = at_;
        PointSet low;
        WEFT_TRY(Member(low));
        const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
        if (!range) {
            Append(set, low);
            return {};
        }
        ++at_;
        PointSet high;
        WEFT_TRY(Member(high));
        const auto single = [](const PointSet& points) {
            return points.size() == 1 && points[0].low == points[0].high;
        };
        if (!single(low) || !single(high)) {
            // A range cannot begin or end with a class such as \w: the '-' is a character.
            Append(set, low);
            Append(set, {{'-', '-'}});
            Append(set, high);
            return {};
        }
        if (low[0].low > high[0].low) return At(begin, "a range's end is below its start");
        set.push_back({low[0].low, high[0].low});
        return {};
    }

    Status Member(PointSet& set) {
        if (at_ < text_.size() && text_[at_] == '\\') return Escape(true, set);
        const uint32_t point = tokenizer::PointAt(text_, at_);
        at_ += CodePointLength(text_, at_);
        set.push_back({point, point});
        return {};
    }

    Status Escape(bool in_class, PointSet& set) {
        const size_t begin = at_++;
        if (at_ >= text_.size()) return At(begin, "the expression ends with a backslash");
        const char c = text_[at_++];
        const auto one = [&](uint32_t point) { set.push_back({point, point}); };
        switch (c) {
            case 'd': return Append(set, kDigitClass), Status();
            case 'D': return Append(set, Complement(kDigitClass)), Status();
            case 'w': return Append(set, kWord), Status();
            case 'W': return Append(set, Complement(kWord)), Status();
            case 's': return Append(set, kSpaces), Status();
            case 'S': return Append(set, Complement(kSpaces)), Status();
            case 'n': return one('\n'), Status();
            case 'r': return one('\r'), Status();
            case 't': return one('\t'), Status();
            case 'f': return one('\f'), Status();
            case 'v': return one('\v'), Status();
            case 'x': return HexEscape(begin, 2, set);
            case 'u': return UnicodeEscape(begin, set);
            case 'b':
                if (in_class) return one('\b'), Status();
                [[fallthrough]];
            case 'B': return Unsupported(begin, "word boundaries are not supported");
            case 'p':
            case 'P': return Unsupported(begin, "Unicode property classes are not supported");
            case 'k': return Unsupported(begin, "back-references are not supported");
            default: break;
        }
        if (c == '0' && (at_ >= text_.size() || text_[at_] < '0' || text_[at_] > '9')) {
            return one(0), Status();
        }
        if (c >= '0' && c <= '9') return Unsupported(begin, "back-references are not supported");
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (letter || static_cast<uint8_t>(c) >= 0x80) {
            return Unsupported(begin, "the escape \\{} is not supported", letter ? c : '?');
        }
        return one(static_cast<uint8_t>(c)), Status();
    }

    Status HexEscape(size_t begin, size_t digits, PointSet& set) {
        const auto point = HexNumber(text_, at_, digits);
        if (!point) return At(begin, "the escape needs {} hexadecimal digits", digits);
        at_ += digits;
        set.push_back({*point, *point});
        return {};
    }

    // Parses \uHHHH, a surrogate pair of them, or \u{H...}.
    Status UnicodeEscape(size_t begin, PointSet& set) {
        uint32_t point = 0;
        if (Take("{")) {
            const size_t end = text_.find('}', at_);
            const size_t digits = end == text_.npos ? 0 : end - at_;
            const auto number = HexNumber(text_, at_, digits <= 8 ? digits : 0);
            if (digits == 0 || digits > 8)
                return At(begin, "'\\u{{' needs 1 to 8 hexadecimal digits");
            if (!number) return At(begin, "the escape needs hexadecimal digits");
            at_ = end + 1;
            point = *number;
        } else {
            const auto number = HexNumber(text_, at_, 4);
            if (!number) return At(begin, "the escape needs 4 hexadecimal digits");
            at_ += 4;
            point = *number;
            if (point >= 0xD800 && point <= 0xDBFF && Ahead("\\u")) {
                const auto low = HexNumber(text_, at_ + 2, 4);
                if (low && *low >= 0xDC00 && *low <= 0xDFFF) {
                    at_ += 6;
                    point = 0x10000 + ((point - 0xD800) << 10) + (*low - 0xDC00);
                }
            }
        }
        if (!IsPoint(point)) return At(begin, "U+{:04X} is not a character", point);
        set.push_back({point, point});
        return {};
    }

    // Length of {m}, {m,} or {m,n} at the cursor, or 0.
    size_t CountLength() const {
        size_t end = at_ + 1, digits = 0;
        for (; end < text_.size() && text_[end] >= '0' && text_[end] <= '9'; ++end) ++digits;
        if (digits == 0) return 0;
        if (end < text_.size() && text_[end] == ',') ++end;
        while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
        return end < text_.size() && text_[end] == '}' ? end + 1 - at_ : 0;
    }

    Result<Expr> Repeats(Expr atom) {
        const size_t begin = at_;
        uint32_t least = 0, most = GrammarBuilder::kNoLimit;
        if (Take("+")) {
            least = 1;
        } else if (Take("?")) {
            most = 1;
        } else if (Ahead("{") && CountLength() > 0) {
            WEFT_TRY(Counts(least, most));
        } else if (!Take("*")) {
            return atom;
        }
        Take("?");  // a lazy repetition matches the same texts
        if (Ahead("+")) return Unsupported(at_, "possessive repetitions are not supported");
        if (Ahead("*") || Ahead("?") || (Ahead("{") && CountLength() > 0)) {
            return At(begin, "a repetition is repeated; use a group");
        }
        return builder_.Repeat(atom, least, most);
    }

    Status Counts(uint32_t& least, uint32_t& most) {
        const size_t begin = at_++;
        const auto low = DecimalNumber(text_, at_, kMostRegexCount);
        if (!low) return Unsupported(begin, "a count above {}", kMostRegexCount);
        least = most = *low;
        if (Take(",")) {
            most = GrammarBuilder::kNoLimit;
            if (!Ahead("}")) {
                const auto high = DecimalNumber(text_, at_, kMostRegexCount);
                if (!high) return Unsupported(begin, "a count above {}", kMostRegexCount);
                most = *high;
            }
        }
        ++at_;
        if (least > most)
            return At(begin, "the minimum {} of a repetition is above its maximum {}", least, most);
        return {};
    }

    std::string_view text_;
    const RegexForm form_;
    GrammarBuilder& builder_;
    size_t at_ = 0;
};

// The first `wanted` from `at` on outside of classes and nested groups.
size_t FindOutside(std::string_view text, size_t at, char wanted) {
    int depth = 0;
    bool in_class = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '\\') {
            ++at;
        } else if (in_class) {
            in_class = c != ']';
        } else if (c == wanted && depth == 0) {
            return at;
        } else if (c == '[') {
            in_class = true;
        } else if (c == '(' || c == ')') {
            depth += c == '(' ? 1 : -1;
        }
    }
    return text.npos;
}

// Leading look-aheads ^(?=...) and ^(?!...): the rest of the text must, or must not, begin with
// them.
struct LookAheads {
    struct One {
        std::string_view expression;
        bool negative;
    };
    std::vector<One> all{};
    std::string rest{};  // the expression without the look-aheads
};

// Splits off look-aheads, but not those that belong to one alternative only.
LookAheads SplitLookAheads(std::string_view text) {
    LookAheads found;
    size_t at = text.starts_with("^") ? 1 : text.size();
    while (text.substr(at).starts_with("(?=") || text.substr(at).starts_with("(?!")) {
        const size_t end = FindOutside(text, at + 3, ')');
        if (end == text.npos || found.all.size() == kMostLookAheads) return {};
        found.all.push_back({text.substr(at + 3, end - at - 3), text[at + 2] == '!'});
        at = end + 1;
    }
    if (found.all.empty() || FindOutside(text, at, '|') != text.npos) return {};
    found.rest = "^" + std::string(text.substr(at));
    return found;
}

Result<TextAutomaton> PlainTexts(std::string_view pattern, const RegexForm& form,
                                 TextBudget& budget) {
    GrammarBuilder builder;
    const auto rule = builder.AddRule("regular expression");
    WEFT_ASSIGN(const auto body, RegexParser(pattern, form, builder).Run());
    builder.Define(rule, body);
    return TextAutomaton::Make(builder, rule, budget);
}

}  // namespace

bool HasLookAhead(std::string_view pattern) {
    return !SplitLookAheads(pattern).all.empty();
}

Result<TextAutomaton> TextsOfRegex(std::string_view pattern, bool search, TextBudget& budget) {
    const LookAheads ahead = SplitLookAheads(pattern);
    if (ahead.all.empty()) return PlainTexts(pattern, {.search = search}, budget);
    WEFT_ASSIGN(TextAutomaton texts, PlainTexts(ahead.rest, {.search = search}, budget));
    for (const auto& [expression, negative] : ahead.all) {
        WEFT_ASSIGN(const TextAutomaton one,
                    PlainTexts(expression, {.search = true, .begun = true}, budget));
        WEFT_ASSIGN(texts, texts.And(negative ? one.Not() : one, budget));
    }
    return texts;
}

Result<GrammarBuilder::Expr> ExprFromRegex(std::string_view pattern, const RegexForm& form,
                                           GrammarBuilder& builder) {
    if (SplitLookAheads(pattern).all.empty()) return RegexParser(pattern, form, builder).Run();
    WEFT_ASSIGN(const TextAutomaton texts,
                TextsOfRegex(pattern, form.search, builder.text_budget()));
    return texts.Written(form.json_string, builder);
}

Result<GrammarPtr> GrammarFromRegex(std::string_view pattern, const CompileLimits& limits) {
    GrammarBuilder builder;
    const auto root = builder.AddRule("regular expression");
    WEFT_ASSIGN(const auto body, ExprFromRegex(pattern, {}, builder));
    builder.Define(root, body);
    return builder.Build(root, limits);
}

}  // namespace weft::grammar
