#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/escapes.h"
#include "tokenizer/unicode.h"

namespace weft::grammar {
namespace {

using Expr = GrammarBuilder::Expr;

// Characters that a string may contain unescaped.
const PointSet kUnescaped = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kMostPoint}};
const PointSet kDigits = {{'0', '9'}};
constexpr size_t kMostShared = 64;  // limit of the common prefix of a name and a string

// The letter of a two-character escape, or 0.
char ShortEscape(uint32_t point) {
    switch (point) {
        case '"': return '"';
        case '\\': return '\\';
        case '\b': return 'b';
        case '\f': return 'f';
        case '\n': return 'n';
        case '\r': return 'r';
        case '\t': return 't';
        default: return 0;
    }
}

// Digit strings of equal length between two bounds, including leading zeros.
class DigitStrings {
  public:
    explicit DigitStrings(GrammarBuilder& builder) : builder_(builder) {}

    Expr Any(size_t count) {
        const auto digits = static_cast<uint32_t>(count);
        return builder_.Repeat(builder_.Points(kDigits), digits, digits);
    }

    Expr AtLeast(std::string_view low) {
        if (low.find_first_not_of('0') == low.npos) return Any(low.size());
        std::vector<Expr> choices = {Then(low[0], low[0], AtLeast(low.substr(1)))};
        if (low[0] < '9') choices.push_back(Then(low[0] + 1, '9', Any(low.size() - 1)));
        return builder_.Choice(std::move(choices));
    }

    Expr AtMost(std::string_view high) {
        if (high.find_first_not_of('9') == high.npos) return Any(high.size());
        std::vector<Expr> choices = {Then(high[0], high[0], AtMost(high.substr(1)))};
        if (high[0] > '0') choices.push_back(Then('0', high[0] - 1, Any(high.size() - 1)));
        return builder_.Choice(std::move(choices));
    }

    Expr Between(std::string_view low, std::string_view high) {
        if (low.empty()) return builder_.Text("");
        if (low[0] == high[0]) {
            return Then(low[0], low[0], Between(low.substr(1), high.substr(1)));
        }
        std::vector<Expr> choices = {Then(low[0], low[0], AtLeast(low.substr(1))),
                                     Then(high[0], high[0], AtMost(high.substr(1)))};
        if (low[0] + 1 < high[0]) {
            choices.push_back(Then(low[0] + 1, high[0] - 1, Any(low.size() - 1)));
        }
        return builder_.Choice(std::move(choices));
    }

  private:
    Expr Then(int low, int high, Expr rest) {
        const PointRange digit = {static_cast<uint32_t>(low), static_cast<uint32_t>(high)};
        return builder_.Sequence({builder_.Points({digit}), rest});
    }

    GrammarBuilder& builder_;
};

// Integers from low to high without leading zeros; 1 <= low <= high.
Expr Positive(int64_t low, int64_t high, GrammarBuilder& builder) {
    DigitStrings digits(builder);
    const std::string least = std::to_string(low), most = std::to_string(high);
    if (least.size() == most.size()) return digits.Between(least, most);
    std::vector<Expr> choices = {digits.AtLeast(least)};
    std::string round(most.size(), '0');
    round[0] = '1';
    choices.push_back(digits.Between(round, most));
    if (least.size() + 1 < most.size()) {
        const Expr rest =
            builder.Repeat(builder.Points(kDigits), static_cast<uint32_t>(least.size()),
                           static_cast<uint32_t>(most.size() - 2));
        choices.push_back(builder.Sequence({builder.Points({{'1', '9'}}), rest}));
    }
    return builder.Choice(std::move(choices));
}

// Strings other than names[begin] to names[end] (sorted, distinct) after their common prefix of
// `shared` code points. Each code point nests the expression by two levels, so after kMostShared of
// them no string is accepted.
Expr But(const std::vector<std::vector<uint32_t>>& names, size_t begin, size_t end, size_t shared,
         GrammarBuilder& builder) {
    if (shared == kMostShared) return builder.Choice({});
    const Expr rest = builder.Repeat(builder.Points(kUnescaped), 0, GrammarBuilder::kNoLimit);
    std::vector<Expr> choices;
    PointSet taken;
    const bool is_name = begin < end && names[begin].size() == shared;
    if (is_name) ++begin;
    if (!is_name) choices.push_back(builder.Text(""));
    while (begin < end && !builder.Full()) {
        const uint32_t point = names[begin][shared];
        size_t last = begin;
        while (last < end && names[last][shared] == point) ++last;
        taken.push_back({point, point});
        std::string bytes;
        tokenizer::AppendPoint(point, bytes);
        choices.push_back(
            builder.Sequence({builder.Text(bytes), But(names, begin, last, shared + 1, builder)}));
        begin = last;
    }
    const PointSet others = Intersection(Normalized(kUnescaped), Complement(std::move(taken)));
    choices.push_back(builder.Sequence({builder.Points(others), rest}));
    return builder.Choice(std::move(choices));
}

}  // namespace

Expr JsonStringPoints(const PointSet& set, GrammarBuilder& builder) {
    std::vector<Expr> choices;
    const PointSet as_is = Intersection(set, Normalized(kUnescaped));
    if (!as_is.empty()) choices.push_back(builder.Points(as_is));
    PointSet shorts;
    std::array<PointSet, 2> longs;  // last digits of \u000x and \u001x
    for (const PointRange& range : Intersection(set, Complement(kUnescaped))) {
        for (uint32_t point = range.low; point <= range.high; ++point) {
            const auto letter = static_cast<uint8_t>(ShortEscape(point));
            const auto digit = static_cast<uint8_t>("0123456789abcdef"[point % 16]);
            PointSet& escapes = letter != 0 ? shorts : longs[point / 16];
            const uint32_t last = letter != 0 ? letter : digit;
            escapes.push_back({last, last});
        }
    }
    if (!shorts.empty()) {
        choices.push_back(builder.Sequence({builder.Text("\\"), builder.Points(shorts)}));
    }
    for (const size_t high : {0, 1}) {
        if (longs[high].empty()) continue;
        const Expr begin = builder.Text(high == 0 ? "\\u000" : "\\u001");
        choices.push_back(builder.Sequence({begin, builder.Points(longs[high])}));
    }
    return builder.Choice(std::move(choices));
}

std::string JsonSpelt(uint8_t byte) {
    if (const char letter = ShortEscape(byte)) return {'\\', letter};
    if (byte >= 0x20) return {static_cast<char>(byte)};
    return fmt::format("\\u{:04x}", byte);
}

Expr JsonCharacter(bool hex, GrammarBuilder& builder) {
    std::vector<Expr> choices = {builder.Points(kUnescaped)};
    const Expr backslash = builder.Text("\\");
    PointSet shorts;
    for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
        shorts.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
    }
    choices.push_back(builder.Sequence({backslash, builder.Points(shorts)}));
    if (!hex) return builder.Choice(std::move(choices));
    const Expr digit = builder.Points({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    const auto digits = [&](uint32_t count) { return builder.Repeat(digit, count, count); };
    const Expr begin = builder.Text("\\u"), d = builder.Points({{'d', 'd'}, {'D', 'D'}});
    const Expr not_d = builder.Points({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}});
    choices.push_back(builder.Sequence({begin, not_d, digits(3)}));
    choices.push_back(builder.Sequence({begin, d, builder.Points({{'0', '7'}}), digits(2)}));
    const Expr high = builder.Points({{'8', '9'}, {'a', 'b'}, {'A', 'B'}});
    const Expr low = builder.Points({{'c', 'f'}, {'C', 'F'}});
    choices.push_back(builder.Sequence({begin, d, high, digits(2), begin, d, low, digits(2)}));
    return builder.Choice(std::move(choices));
}

Expr JsonString(GrammarBuilder& builder) {
    const Expr quote = builder.Text("\"");
    return builder.Sequence(
        {quote, builder.Repeat(JsonCharacter(true, builder), 0, GrammarBuilder::kNoLimit), quote});
}

Expr JsonStringBut(std::vector<std::string> names, GrammarBuilder& builder) {
    std::vector<std::vector<uint32_t>> points;
    for (const std::string& name : names) {
        std::vector<uint32_t> spelt;
        for (size_t at = 0; at < name.size();) {
            const uint32_t point = tokenizer::PointAt(name, at);
            std::string bytes;
            tokenizer::AppendPoint(point, bytes);
            at += bytes.size();
            spelt.push_back(point);
        }
        // Characters that must be escaped cannot be matched without escapes.
        const bool plain = std::all_of(spelt.begin(), spelt.end(), [](uint32_t point) {
            return point >= 0x20 && point != '"' && point != '\\';
        });
        if (plain) points.push_back(std::move(spelt));
    }
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    const Expr quote = builder.Text("\"");
    return builder.Sequence({quote, But(points, 0, points.size(), 0, builder), quote});
}

Expr JsonInteger(std::optional<int64_t> least, std::optional<int64_t> most,
                 GrammarBuilder& builder) {
    const int64_t low = std::max(least.value_or(-kMostWhole), -kMostWhole);
    const int64_t high = std::min(most.value_or(kMostWhole), kMostWhole);
    std::vector<Expr> choices;
    if (low <= 0 && high >= 0) choices.push_back(builder.Text("0"));
    if (high >= 1 && low <= high) {
        choices.push_back(Positive(std::max<int64_t>(low, 1), high, builder));
    }
    if (low <= -1 && low <= high) {
        const Expr size = Positive(std::max<int64_t>(-high, 1), -low, builder);
        choices.push_back(builder.Sequence({builder.Text("-"), size}));
    }
    return builder.Choice(std::move(choices));
}

Expr JsonNumber(GrammarBuilder& builder) {
    const Expr digit = builder.Points(kDigits);
    const Expr whole = builder.Choice(
        {builder.Text("0"),
         builder.Sequence({builder.Points({{'1', '9'}}), builder.Repeat(digit, 0, 17)})});
    const Expr fraction = builder.Sequence({builder.Text("."), builder.Repeat(digit, 1, 17)});
    const Expr sign = builder.Points({{'+', '+'}, {'-', '-'}});
    const Expr exponent =
        builder.Sequence({builder.Points({{'e', 'e'}, {'E', 'E'}}), builder.Repeat(sign, 0, 1),
                          builder.Repeat(digit, 1, 2)});
    return builder.Sequence({builder.Repeat(builder.Text("-"), 0, 1), whole,
                             builder.Repeat(fraction, 0, 1), builder.Repeat(exponent, 0, 1)});
}

// A partial `end` that continues differently is text, and may contain the start of another one.
Expr TextWithout(std::string_view end, GrammarBuilder& builder) {
    const auto first = static_cast<uint32_t>(static_cast<unsigned char>(end[0]));
    std::vector<Expr> begun, broken;
    for (size_t size = 1; size < end.size(); ++size) {
        const Expr begin = builder.Text(end.substr(0, size));
        const auto next = static_cast<uint32_t>(static_cast<unsigned char>(end[size]));
        begun.push_back(begin);
        broken.push_back(
            builder.Sequence({begin, builder.Points(Complement({{first, first}, {next, next}}))}));
    }
    const Expr other = builder.Points(Complement({{first, first}}));
    if (end.size() < 2) return builder.Repeat(other, 0, GrammarBuilder::kNoLimit);
    const Expr chain =
        builder.Sequence({builder.Repeat(builder.Choice(begun), 0, GrammarBuilder::kNoLimit),
                          builder.Choice(std::move(broken))});
    return builder.Repeat(builder.Choice({other, chain}), 0, GrammarBuilder::kNoLimit);
}

}  // namespace weft::grammar
