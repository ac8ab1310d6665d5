#include "grammar/json_decimal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "grammar/json_text.h"

namespace weft::grammar {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr size_t kLeastFraction = 6, kMostFraction = 12, kMostDigits = 15;

// The magnitude of a bound: integer digits and decimals.
struct Decimal {
    int64_t whole;
    std::string fraction;
    bool open;
};

bool Zeros(std::string_view digits) {
    return digits.find_first_not_of('0') == digits.npos;
}

// The magnitude of a bound. If it has too many digits, it is rounded, up or down; then the bound
// itself cannot be written.
Decimal SizeOf(const NumberBound& bound, bool up) {
    const double size = std::fabs(bound.value);
    const auto whole = static_cast<int64_t>(size);
    const size_t room = kMostDigits - std::min(kMostDigits, std::to_string(whole).size());
    const size_t most = bound.open ? std::min(kMostFraction, room) : kMostFraction;
    for (size_t digits = 0; digits <= most; ++digits) {
        const std::string text = fmt::format("{:.{}f}", size, digits);
        if (std::stod(text) != size) continue;
        return {whole, digits == 0 ? "" : text.substr(text.find('.') + 1), bound.open};
    }
    // Sizes with more than kMostFraction decimals are below 2^13, so the digits fit.
    std::string digits = fmt::format("{:.{}f}", size, most);
    const double rounded = std::stod(digits);
    const int64_t wanted = up ? rounded < size : -int64_t{rounded > size};
    std::erase(digits, '.');
    digits = fmt::format("{:0{}}", std::stoll(digits) + wanted, most + 1);
    const size_t point = digits.size() - most;
    std::string fraction = digits.substr(point);
    fraction.erase(fraction.find_last_not_of('0') + 1);
    return {std::stoll(digits.substr(0, point)), std::move(fraction), false};
}

// Whether the larger of two bounds of one sign is below the smaller one, because they were rounded.
bool Cross(const Decimal& smaller, const Decimal& larger) {
    if (smaller.whole != larger.whole) return smaller.whole > larger.whole;
    std::string low = smaller.fraction, high = larger.fraction;
    low.resize(kMostFraction, '0');
    high.resize(kMostFraction, '0');
    return low > high;
}

class Range {
  public:
    Range(size_t digits, GrammarBuilder& builder) : digits_(digits), builder_(builder) {}

    // Unsigned numbers from `low` to `high`; without `high`: unlimited.
    Expr Between(Decimal low, std::optional<Decimal> high) {
        const bool same = high && high->whole == low.whole;
        const size_t low_room = Room(low), high_room = high ? Room(*high) : digits_;
        const size_t both = std::max(
            {std::min(low_room, high_room), low.fraction.size(), high ? high->fraction.size() : 0});
        low.fraction.resize(same ? both : low_room, '0');
        if (high) high->fraction.resize(same ? both : high_room, '0');
        const auto whole = [&](int64_t number) { return builder_.Text(std::to_string(number)); };
        std::vector<Expr> choices = {
            builder_.Sequence({whole(low.whole), Fraction(&low, same ? &*high : nullptr)})};
        if (high && !same) {
            choices.push_back(builder_.Sequence({whole(high->whole), Fraction(nullptr, &*high)}));
        }
        const auto last = high ? std::optional(high->whole - 1) : std::nullopt;
        const auto add = [&](int64_t from, std::optional<int64_t> to, size_t digits) {
            if (to && *to < from) return;
            choices.push_back(
                builder_.Sequence({JsonInteger(from, to, builder_), Decimals(digits)}));
        };
        // Numbers of at most kMostDigits digits are different as doubles, too.
        const size_t room = std::min(low_room, high_room);
        int64_t apart = 1;
        for (size_t i = digits_; i < kMostDigits; ++i) apart *= 10;
        if (room == digits_) {
            add(low.whole + 1, last, digits_);
        } else {
            add(low.whole + 1, last ? std::min(*last, apart - 1) : apart - 1, digits_);
            add(std::max(low.whole + 1, apart), last, room);
        }
        return builder_.Choice(std::move(choices));
    }

  private:
    // Decimals beside the whole part of a bound. Rounding to a double keeps the order of numbers,
    // so it moves none past a bound, but it may move one to a bound that is excluded.
    size_t Room(const Decimal& bound) const {
        const size_t whole = std::to_string(bound.whole).size();
        return bound.open ? std::min(digits_, kMostDigits - std::min(kMostDigits, whole)) : digits_;
    }

    // The decimal point and decimals, or nothing.
    Expr Decimals(size_t digits) {
        if (digits == 0) return builder_.Text("");
        const Expr any = builder_.Points({{'0', '9'}});
        return builder_.Choice(
            {builder_.Text(""),
             builder_.Sequence(
                 {builder_.Text("."), builder_.Repeat(any, 1, static_cast<uint32_t>(digits))})});
    }

    // The same within a bound's decimals; with two bounds, both have as many.
    Expr Fraction(const Decimal* low, const Decimal* high) {
        std::vector<Expr> choices;
        if (MayEnd(0, low, high)) choices.push_back(builder_.Text(""));
        if (!(low != nullptr ? low : high)->fraction.empty()) {
            choices.push_back(builder_.Sequence({builder_.Text("."), Next(0, low, high)}));
        }
        return builder_.Choice(std::move(choices));
    }

    // Whether the remaining decimals may be zeros.
    bool MayEnd(size_t at, const Decimal* low, const Decimal* high) const {
        const bool low_zero = low == nullptr || Zeros(std::string_view(low->fraction).substr(at));
        const bool high_zero =
            high != nullptr && Zeros(std::string_view(high->fraction).substr(at));
        return low_zero && !(low != nullptr && low->open) && !(high_zero && high->open);
    }

    // Matches one or more further decimals. A bound is passed while the digits so far equal its
    // own.
    Expr Next(size_t at, const Decimal* low, const Decimal* high) {
        const size_t digits = (low != nullptr ? low : high)->fraction.size();
        std::vector<Expr> choices;
        PointSet free;
        for (char digit = '0'; digit <= '9' && at < digits; ++digit) {
            if (low != nullptr && digit < low->fraction[at]) continue;
            if (high != nullptr && digit > high->fraction[at]) continue;
            const uint32_t point = static_cast<unsigned char>(digit);
            const Decimal* still_low = low != nullptr && digit == low->fraction[at] ? low : nullptr;
            const Decimal* still_high =
                high != nullptr && digit == high->fraction[at] ? high : nullptr;
            if (still_low == nullptr && still_high == nullptr) {
                free.push_back({point, point});
                continue;
            }
            std::vector<Expr> rest;
            if (MayEnd(at + 1, still_low, still_high)) rest.push_back(builder_.Text(""));
            if (at + 1 < digits) rest.push_back(Next(at + 1, still_low, still_high));
            choices.push_back(builder_.Sequence(
                {builder_.Points({{point, point}}), builder_.Choice(std::move(rest))}));
        }
        if (!free.empty()) {
            const Expr any = builder_.Points({{'0', '9'}});
            const auto more = static_cast<uint32_t>(digits - at - 1);
            choices.push_back(
                builder_.Sequence({builder_.Points(free), builder_.Repeat(any, 0, more)}));
        }
        return builder_.Choice(std::move(choices));
    }

    const size_t digits_;
    GrammarBuilder& builder_;
};

}  // namespace

Result<Expr> JsonDecimal(const std::optional<NumberBound>& low,
                         const std::optional<NumberBound>& high, GrammarBuilder& builder) {
    const bool empty =
        low && high &&
        (low->value > high->value || (low->value == high->value && (low->open || high->open)));
    if (empty) return MakeError(ErrorCode::kUsage, "no number lies between the bounds");
    size_t digits = kLeastFraction;
    std::optional<Decimal> low_size, high_size;
    for (const auto& [bound, size] : {std::pair(&low, &low_size), {&high, &high_size}}) {
        if (!*bound) continue;
        *size = SizeOf(**bound, (bound == &low) == ((*bound)->value > 0));
        digits = std::max(digits, (*size)->fraction.size());
    }
    const bool negative = high && high->value < 0;
    const bool one_sign = low && high && (negative || low->value > 0);
    if (one_sign && Cross(negative ? *high_size : *low_size, negative ? *low_size : *high_size)) {
        return MakeError(ErrorCode::kUsage,
                         "no number with at most {} decimals lies between the bounds",
                         kMostFraction);
    }
    Range range(digits, builder);
    std::vector<Expr> choices;
    if (!high || high->value >= 0) {
        const bool from_low = low && low->value >= 0;
        const bool has_zero = !high || high->value > 0 || !high->open;
        if (has_zero) {
            choices.push_back(
                range.Between(from_low ? *low_size : Decimal{0, "", false}, high_size));
        }
    }
    if (!low || low->value < 0) {
        const bool from_high = high && high->value < 0;
        choices.push_back(builder.Sequence(
            {builder.Text("-"),
             range.Between(from_high ? *high_size : Decimal{0, "", true}, low_size)}));
    }
    return builder.Choice(std::move(choices));
}

}  // namespace weft::grammar
