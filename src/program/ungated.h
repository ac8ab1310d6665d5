// Activations of one operand, as a struct with a row (ops.h).
#pragma once

#include "program/op_row.h"
#include "tensor/ungated.h"

namespace weft::program {

struct Activate {
    static constexpr OpRow kRow{"activate", "x[..] -> y[..]", Pass::kBoth,
                                Trait::kRowWise | Trait::kCheap | Trait::kExact};
    Ungated kind = Ungated::kReluSquared;
    Xielu xielu{};  // with kXielu; kClamp: its limit is `above`
    void Show(auto& show) const {
        show("kind", UngatedName(kind));
        if (kind == Ungated::kClamp) show("limit", xielu.above);
        if (kind != Ungated::kXielu) return;
        show("above", xielu.above);
        show("below", xielu.below);
        show("beta", xielu.beta);
    }
};
struct ActivateGrad : Activate {  // dy * act'(x)
    static constexpr OpRow kRow{"activate_grad", "dy[..] x[..] -> dx[..]", Pass::kBackward,
                                Trait::kRowWise | Trait::kExact};
};

}  // namespace weft::program
