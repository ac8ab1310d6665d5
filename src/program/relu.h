// Activations without a gate, as structs with rows (ops.h).
#pragma once

#include "program/op_row.h"

namespace weft::program {

struct ReluSquared {  // max(x, 0)^2: So et al. 2021, "Primer"
    static constexpr OpRow kRow{"relu_squared", "x[..] -> y[..]", Pass::kInference,
                                Trait::kRowWise | Trait::kCheap, 2};
};

}  // namespace weft::program
