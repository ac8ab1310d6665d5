// Numbers between bounds as JSON writes them: with a fraction, without an exponent.
//
// So that a reader's rounding to a double can't carry a number over its bound, there are as many
// digits behind the point as a bound has, 6 at least, and none where a bound is above 10^9.
#pragma once

#include <optional>

#include "base/result.h"
#include "grammar/builder.h"

namespace weft::grammar {

// One end of a range of numbers.
struct NumberBound {
    double value;
    bool open;  // the range is without the end itself
};

// At least one bound is given. kUsage: a bound has more digits than can be told apart, or no number
// lies between the two.
Result<GrammarBuilder::Expr> JsonDecimal(const std::optional<NumberBound>& low,
                                         const std::optional<NumberBound>& high,
                                         GrammarBuilder& builder);

}  // namespace weft::grammar
