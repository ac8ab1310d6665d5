// Ops with recurrent state, as structs with rows (ops.h).
//
// A sequence carries the state from row to row; its size does not depend on the length of the
// sequence. States are in slots. A step names, for each sequence, the slot with the state before
// the sequence's first row of the step, and the rows after which the state is stored in a slot
// (backend/step.h). Rows are computed one after another, so the bits do not depend on how a prompt
// is divided into steps. In training (`stateless`), each sequence starts without a state and stores
// none; all values are float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "program/op_row.h"

namespace weft::program {

// A causal convolution of each column with its own `width` taps (Lea et al. 2016):
//     y[t] = act(bias + sum over j of weight[j] * x[t - width + 1 + j])
// The state is the last width - 1 rows of x. With gates (LFM2's short convolution) the input is
// `inner * x` instead of x, and y is multiplied by `outer`.
struct CausalConv {
    static constexpr OpRow kRow{
        "causal_conv",
        "x[T,n] weight[n,..,w] (bias[n]) (inner[T,n] outer[T,n]) (state[_,n]:slots) -> y[T,n]",
        Pass::kBoth, Trait::kSeesEarlier | Trait::kExact};
    bool silu = false;  // act is SiLU; otherwise there is no act
    bool gated = false;
    bool stateless = false;
    bool biased(size_t inputs) const {
        return inputs == 3u + (gated ? 2u : 0u) + (stateless ? 0u : 1u);
    }
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "state") return !stateless;
        return operand == "bias" ? std::nullopt : std::optional(gated);
    }
    void Show(auto& show) const {
        show.Flag("silu", silu);
        show.Flag("gated", gated);
        show.Flag("stateless", stateless);
    }
};
// With u the convolved input and z the sum before act, both computed again: dz = dy * outer *
// act'(z), du[t] = the sum of weight[j] * dz[t + width - 1 - j]; dx = du * inner, dinner = du * x,
// douter = dy * act(z).
struct CausalConvGrad {
    static constexpr OpRow kRow{"causal_conv_grad",
                                "dy[T,n] x[T,n] weight[n,w] (bias[n]) (inner[T,n] outer[T,n])"
                                " -> dx[T,n] (dinner[T,n] douter[T,n])",
                                Pass::kBackward, Trait::kExact, 30};
    CausalConv forward;
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "bias" ? std::nullopt : std::optional(forward.gated);
    }
    void Show(auto& show) const { forward.Show(show); }
};
struct CausalConvGradWeight {  // dw[j] += sum of dz[t] * u[t - width + 1 + j], db += sum of dz
    static constexpr OpRow kRow{
        "causal_conv_grad_weight",
        "dy[T,n] x[T,n] weight[n,w] (bias[n]) (inner[T,n] outer[T,n]) -> dw[n,w]+= (db[n]+=)",
        Pass::kBackward, Trait::kExact, 30};
    CausalConv forward;
    bool biased = false;
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "bias" || operand == "db" ? biased : forward.gated;
    }
    void Show(auto& show) const { forward.Show(show); }
};

// The gated delta rule (Yang et al. 2024, "Gated Delta Networks"). Each head has a state S [d, e],
// zero before a sequence. Each row computes
//     S = exp(a * softplus(decay + dt)) * S
//     S = S + k (v - k^T S)^T * sigmoid(beta)
//     y = q^T S
// with q = query_scale * q and k = key_scale * k. If `floor` is not 0, decays are bounded (Ling 3):
// S = exp(floor * sigmoid(|a| * (decay + dt))) * S. Several heads share a query and key head: head
// h of the model uses number h / group, or h % cycle if `cycle` is not 0.
//
// `ssd`: the state-space duality of Mamba-2 (Dao and Gu 2024). The paper's C is q, its B is k, its
// x is v and its D is skip. The state adds the whole value, scaled by the same `step` as the decay:
//     step = softplus(decay + dt)
//     S = exp(a * step) * S + step * k v^T
//     y = q^T S + skip * v
// With `by_channel`, `a` has a number for each row of S: the selective state space of Mamba (Gu and
// Dao 2023), whose channels are heads of one column.
struct DeltaRule {
    static constexpr OpRow kRow{"delta_rule",
                                "q[T,m] k[T,m] v[T,n] decay[T,_] (beta[T,h]) a[..] dt[_] (skip[h]) "
                                "(state[h,_,_]:slots) -> y[T,n]",
                                Pass::kBoth, Trait::kSeesEarlier | Trait::kExact};
    int64_t first_head = 0;                     // model head at which this rank's heads begin
    int64_t key_heads = 1, first_key_head = 0;  // this rank's key heads
    int64_t group = 1, cycle = 0;
    float query_scale = 1, key_scale = 1;
    // True: decay [T, h * d] and dt [h * d], one per row of S (Kimi Delta Attention); with `ssd` a
    // [h, d] instead. False: [T, h] and [h], one per head.
    bool by_channel = false;
    float floor = 0;   // below 0; 0: decays are not bounded
    bool ssd = false;  // has skip instead of beta, and one step per head
    bool stateless = false;
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "state") return !stateless;
        return operand == "skip" || operand == "dskip" ? ssd : !ssd;
    }
    // The index, among this rank's key heads, of the key head of this rank's head `h`.
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
        show.Flag("stateless", stateless);
    }
};
// da, dskip: each row's addends to the gradients of a and skip. (The gradient of dt is the sum of
// the rows of ddecay.)
struct DeltaRuleGrad {
    static constexpr OpRow kRow{
        "delta_rule_grad",
        "dy[T,n] q[T,m] k[T,m] v[T,n] decay[T,s] (beta[T,h]) a[h] dt[s] (skip[h])"
        " -> dq[T,m] dk[T,m] dv[T,n] ddecay[T,s] (dbeta[T,h]) da[T,h] (dskip[T,h])",
        Pass::kBackward, Trait::kExact};
    DeltaRule forward;
    std::optional<bool> Has(std::string_view operand) const { return forward.Has(operand); }
    void Show(auto& show) const { forward.Show(show); }
};

}  // namespace weft::program
