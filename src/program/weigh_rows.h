// The op for experts whose weight multiplies their input, not their result (Llama 4).
#pragma once

#include <cstdint>

#include "program/op_row.h"

namespace weft::program {

// Multiplies row t of x by the weight of each expert that t chose. ExpertSum then reads `rest` as
// its weights, which are 1. This rank holds experts [first_expert, first_expert + experts) and
// writes only their rows of y.
struct WeighRows {
    static constexpr OpRow kRow{
        "weigh_rows", "x[T,k] ids[T,K]:i32 weights[T,K]:exact -> y[T,K,k] rest[T,K]:exact",
        Pass::kBoth, Trait::kRowWise};
    int64_t first_expert = 0, experts = 0;
    bool cut = false;  // other tensor ranks have other experts, or parts of these
    void Show(auto& show) const {
        show("first_expert", first_expert);
        show("experts", experts);
        show.Flag("cut", cut);
    }
};
// dx = the sum over a token's experts of weight * dy, dweights = dy . x. Rows of experts that other
// ranks hold count as zeros.
struct WeighRowsGrad {
    static constexpr OpRow kRow{"weigh_rows_grad",
                                "dy[T,K,k] x[T,k] ids[T,K]:i32 weights[T,K]:exact"
                                " -> dx[T,k] dweights[T,K]:exact",
                                Pass::kBackward, Trait::kRowWise, 4};
    WeighRows forward;
    void Show(auto& show) const { forward.Show(show); }
};

// x times the sum of a token's weights of the experts from `first` on, which have no matrices:
// their result is their input (LongCat-Flash).
struct IdentityExperts {
    static constexpr OpRow kRow{"identity_experts",
                                "x[T,n] ids[T,K]:i32 weights[T,K]:exact -> y[T,n]",
                                Pass::kInference, Trait::kRowWise, 1};
    int64_t first = 0;
    void Show(auto& show) const { show("first", first); }
};

}  // namespace weft::program
