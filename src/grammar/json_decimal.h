// Decimal numbers between bounds, in JSON without an exponent.
//
// A number may have as many decimals as the bounds have: at least 6, at most 12. If an excluded
// bound has more than 9 digits before the point, numbers of that length have fewer decimals, 15
// digits in total, so that rounding to a double cannot move them to the bound. A bound with more
// digits than such a number is rounded into the range.
#pragma once

#include <optional>

#include "base/result.h"
#include "grammar/builder.h"

namespace weft::grammar {

struct NumberBound {
    double value;
    bool open;  // the bound itself is excluded
};

// At least one bound must be given. kUsage: no such number lies between the bounds.
Result<GrammarBuilder::Expr> JsonDecimal(const std::optional<NumberBound>& low,
                                         const std::optional<NumberBound>& high,
                                         GrammarBuilder& builder);

}  // namespace weft::grammar
