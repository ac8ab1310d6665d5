// Decimal numbers between bounds, in JSON without an exponent.
//
// A number may have as many decimals as the bounds have, and at least 6. Where an excluded bound
// has more than 9 digits before the point, numbers as long have fewer decimals, 15 digits in total,
// so that rounding to a double cannot move them to the bound.
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
