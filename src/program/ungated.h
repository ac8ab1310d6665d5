// Activations of MLPs without a gate, as a struct with a row (ops.h).
#pragma once

#include "program/op_row.h"
#include "tensor/ungated.h"

namespace weft::program {

struct Activate {
    static constexpr OpRow kRow{"activate", "x[..] -> y[..]", Pass::kInference,
                                Trait::kRowWise | Trait::kCheap};
    Ungated kind = Ungated::kReluSquared;
    Xielu xielu{};  // with kXielu
    void Show(auto& show) const {
        show("kind", UngatedName(kind));
        if (kind != Ungated::kXielu) return;
        show("above", xielu.above);
        show("below", xielu.below);
        show("beta", xielu.beta);
    }
};

}  // namespace weft::program
