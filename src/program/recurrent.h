// Ops with recurrent state, by rows and structs as ops.h has them.
//
// What a sequence carries from row to row, of the same size however long the sequence is. It is in
// slots: a step names, for each sequence, the slot that holds the state before its first row, and
// the rows after which the state is stored in a slot (backend/step.h). Rows are computed one after
// another, so that no cut of a prompt into steps changes their bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "program/op_row.h"

namespace weft::program {

// A causal convolution of each column with its own `width` taps (Lea et al. 2016):
//     y[t] = act(bias + sum over j of weight[j] * x[t - width + 1 + j])
// The state is the last width - 1 rows of x. With gates (LFM2's short convolution) `inner * x`
// takes the place of x, and y is multiplied by `outer`.
struct CausalConv {
    static constexpr OpRow kRow{
        "causal_conv",
        "x[T,n] weight[n,1,w] (bias[n]) (inner[T,n] outer[T,n]) state[_,n]:slots -> y[T,n]",
        Pass::kInference, Trait::kSeesEarlier};
    bool silu = false;  // act; else there is none
    bool gated = false;
    bool biased(size_t inputs) const { return inputs == (gated ? 6u : 4u); }
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "bias" ? std::nullopt : std::optional(gated);
    }
    void Show(auto& show) const {
        show.Flag("silu", silu);
        show.Flag("gated", gated);
    }
};

// The gated delta rule (Yang et al. 2024, "Gated Delta Networks"): of each head, a state S [d, e]
// that is zeros before a sequence, and for each row
//     S = exp(a * softplus(decay + dt)) * S
//     S = S + k (v - k^T S)^T * sigmoid(beta)
//     y = q^T S
// with q = query_scale * q and k = key_scale * k. Where `floor` is not 0, decays are bounded (Ling
// 3): S = exp(floor * sigmoid(a * (decay + dt))) * S. Several heads share a query and key head:
// head h of the model has that of number h / group, or, where `cycle` is not 0, h % cycle.
//
// `ssd`: the state-space duality of Mamba-2 (Dao and Gu 2024). Its C is q, B is k, x is v and D is
// skip, and the state takes in the whole value, by the same step that it decays by:
//     step = softplus(decay + dt)
//     S = exp(a * step) * S + step * k v^T
//     y = q^T S + skip * v
struct DeltaRule {
    static constexpr OpRow kRow{"delta_rule",
                                "q[T,m] k[T,m] v[T,n] decay[T,_] (beta[T,h]) a[h] dt[_] (skip[h]) "
                                "state[h,d,e]:slots -> y[T,n]",
                                Pass::kInference, Trait::kSeesEarlier};
    int64_t first_head = 0;                     // of the model, where this rank's heads begin
    int64_t key_heads = 1, first_key_head = 0;  // of this rank
    int64_t group = 1, cycle = 0;
    float query_scale = 1, key_scale = 1;
    // decay [T, h * d] and dt [h * d]: each row of S has its own (Kimi Delta Attention). Else [T,
    // h] and [h]: one for each head.
    bool by_channel = false;
    float floor = 0;   // below 0, or none
    bool ssd = false;  // has skip; else beta. It decays by head
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "skip" ? ssd : !ssd;
    }
    // Of this rank: the key head of its head `h`.
    int64_t KeyHeadOf(int64_t h) const {
        const int64_t head = first_head + h;
        return (cycle > 0 ? head % cycle : head / group) - first_key_head;
    }
    void Show(auto& show) const {
        show("first_head", first_head);
        show("key_heads", key_heads);
        show("first_key_head", first_key_head);
        show("group", group);
        show.Where("cycle", cycle);
        show("query_scale", query_scale);
        show("key_scale", key_scale);
        show.Flag("by_channel", by_channel);
        show.Flag("ssd", ssd);
        show.Where("floor", floor);
    }
};

}  // namespace weft::program
