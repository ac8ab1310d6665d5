// Bounded repetition of an expression, such as a string's characters or a list's items. Each
// expanded repetition adds states. After `most_written` expanded repetitions in total, further ones
// are therefore composed of shared rules that repeat the expression 16, 32, ... 1024 times. Tokens
// that cross the end of such a rule cost extra time, so counts below 16 are always expanded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "grammar/builder.h"

namespace weft::grammar {

class Repetitions {
  public:
    Repetitions(GrammarBuilder::Expr one, uint32_t most_written, GrammarBuilder& builder)
        : one_(one), left_(most_written), builder_(builder) {}

    // The expression repeated `least` to `most` times (kNoLimit: unlimited). Precondition: least <=
    // most.
    GrammarBuilder::Expr Between(uint32_t least, uint32_t most);

  private:
    using Expr = GrammarBuilder::Expr;
    using Rule = GrammarBuilder::Rule;
    // Rules exist for these powers of two.
    static constexpr size_t kLeastPower = 4, kMostPower = 10;
    static constexpr uint32_t kLow = (1U << kLeastPower) - 1, kWhole = 1U << kMostPower;

    Expr Exactly(uint32_t count);
    Expr UpTo(uint32_t count);
    Expr UpToWhole(uint32_t count);
    Expr Power(size_t power);  // 2^power times
    Expr Below(size_t power);  // fewer than 2^power times
    Expr Shared(std::optional<Rule>& rule, uint32_t least, uint32_t most);

    const Expr one_;
    uint32_t left_;  // repetitions that may still be expanded
    GrammarBuilder& builder_;
    std::array<std::optional<Rule>, kMostPower + 1> powers_, below_;
};

}  // namespace weft::grammar
