// Something so many times: characters of strings, items of lists. Written out, each time takes an
// automaton's states of its own: what is more than `most_written` times, in one place or in several
// together, is put together of rules for 16, 32, ... 1024 times, which these places share. Tokens
// reach over the end of such a rule, which costs time at each: so what is less is written out.
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

    // From `least` to `most` (kNoLimit: any number) times. Precondition: least <= most.
    GrammarBuilder::Expr Between(uint32_t least, uint32_t most);

  private:
    using Expr = GrammarBuilder::Expr;
    using Rule = GrammarBuilder::Rule;
    // Rules are there for these powers of two.
    static constexpr size_t kLeastPower = 4, kMostPower = 10;
    static constexpr uint32_t kLow = (1U << kLeastPower) - 1, kWhole = 1U << kMostPower;

    Expr Exactly(uint32_t count);
    Expr UpTo(uint32_t count);
    Expr UpToWhole(uint32_t count);
    Expr Power(size_t power);  // 2^power times
    Expr Below(size_t power);  // fewer
    Expr Shared(std::optional<Rule>& rule, uint32_t least, uint32_t most);

    const Expr one_;
    uint32_t left_;  // times that may be written out
    GrammarBuilder& builder_;
    std::array<std::optional<Rule>, kMostPower + 1> powers_, below_;
};

}  // namespace weft::grammar
