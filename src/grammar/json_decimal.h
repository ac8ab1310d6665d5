// Decimal numbers between bounds, in JSON without an exponent.
//
// The number of decimals is limited so that rounding to a double cannot move a number past a bound.
// A number may have as many decimals as the bounds have, and at least 6; it may have none if a
// bound is above 10^9.
#pragma once

#include <optional>

#include "base/result.h"
#include "grammar/builder.h"

namespace weft::grammar {

struct NumberBound {
    double value;
    bool open;  // the bound itself is excluded
};

// At least one bound must be given. kUsage: a bound has too many digits, or no number lies between
// the bounds.
Result<GrammarBuilder::Expr> JsonDecimal(const std::optional<NumberBound>& low,
                                         const std::optional<NumberBound>& high,
                                         GrammarBuilder& builder);

}  // namespace weft::grammar
