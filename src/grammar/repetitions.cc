#include "grammar/repetitions.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace weft::grammar {

GrammarBuilder::Expr Repetitions::Between(uint32_t least, uint32_t most) {
    const bool endless = most == GrammarBuilder::kNoLimit;
    const uint32_t longest = endless ? least : most;
    if (longest <= left_) {
        left_ -= longest;
        return builder_.Repeat(one_, least, most);
    }
    const Expr more = endless ? builder_.Repeat(one_, 0, most) : UpTo(most - least);
    return builder_.Sequence({Exactly(least), more});
}

GrammarBuilder::Expr Repetitions::Exactly(uint32_t count) {
    std::vector<Expr> parts;
    const uint32_t wholes = count / kWhole;
    if (wholes > 0) parts.push_back(builder_.Repeat(Power(kMostPower), wholes, wholes));
    for (size_t power = kMostPower; power-- > kLeastPower;) {
        if ((count >> power & 1) != 0) parts.push_back(Power(power));
    }
    parts.push_back(builder_.Repeat(one_, count & kLow, count & kLow));
    return builder_.Sequence(std::move(parts));
}

// Whole multiples of kWhole plus a remainder, or fewer multiples and a part of a multiple.
GrammarBuilder::Expr Repetitions::UpTo(uint32_t count) {
    const Expr rest = UpToWhole(count % kWhole);
    const uint32_t wholes = count / kWhole;
    if (wholes == 0) return rest;
    const Expr whole = Power(kMostPower);
    return builder_.Choice(
        {builder_.Sequence({builder_.Repeat(whole, wholes, wholes), rest}),
         builder_.Sequence({builder_.Repeat(whole, 0, wholes - 1), Below(kMostPower)})});
}

// Splits `count` by binary digits: up to 2^power repetitions, plus a remainder.
GrammarBuilder::Expr Repetitions::UpToWhole(uint32_t count) {
    Expr rest = builder_.Repeat(one_, 0, count & kLow);
    for (size_t power = kLeastPower; power < kMostPower; ++power) {
        if ((count >> power & 1) == 0) continue;
        rest = builder_.Choice({builder_.Sequence({Power(power), rest}), Below(power)});
    }
    return rest;
}

GrammarBuilder::Expr Repetitions::Power(size_t power) {
    const uint32_t count = 1U << power;
    return Shared(powers_[power], count, count);
}

GrammarBuilder::Expr Repetitions::Below(size_t power) {
    return Shared(below_[power], 0, (1U << power) - 1);
}

GrammarBuilder::Expr Repetitions::Shared(std::optional<Rule>& rule, uint32_t least, uint32_t most) {
    if (!rule) {
        rule = builder_.AddRule(fmt::format("{} to {} times", least, most));
        builder_.Define(*rule, builder_.Repeat(one_, least, most));
    }
    return builder_.Call(*rule);
}

}  // namespace weft::grammar
