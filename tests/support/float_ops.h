// Apply(): one op of the interpreter. In float, ops of kernels/reference/backward.h and
// kernels/reference/elements.h run these kernels, each in two parts, one after the other. All other
// ops are naive loops.
#pragma once

#include "kernels/reference/backward.h"
#include "kernels/reference/elements.h"
#include "program/sharding.h"
#include "support/naive_experts.h"
#include "support/naive_ops.h"
#include "support/naive_recurrent.h"
#include "support/naive_streams.h"
#include "support/naive_windows.h"

namespace weft::support {

namespace floats {

namespace dense = kernels::dense;
namespace ref = kernels::reference;
using Call = OpCall<float>;

inline std::vector<int32_t> Ints(const Matrix<float>& m) {
    std::vector<int32_t> ints;
    for (float value : m.data) ints.push_back(static_cast<int32_t>(value));
    return ints;
}

template <typename F>
void InParts(const F& kernel) {
    for (int part = 0; part < 2; ++part) kernel(part, 2);
}

inline dense::Matrix View(Matrix<float>& m) {
    return {m.data.data(), m.cols()};
}
inline dense::ConstMatrix View(const Matrix<float>& m) {
    return {m.data.data(), m.cols()};
}

inline dense::CausalArgs AttentionArgs(const program::Attention& a, const Call& c, size_t first) {
    dense::CausalArgs args;
    args.sequences = c.sequences;
    args.q = View(c.in[first]), args.k = View(c.in[first + 1]), args.v = View(c.in[first + 2]);
    args.heads = a.heads, args.kv_heads = a.kv_heads, args.head_dim = a.head_dim;
    args.first_head = a.first_head, args.group = a.group, args.first_kv_head = a.first_kv_head;
    args.scale = a.scale;
    args.window = a.window, args.soft_cap = a.soft_cap;
    if (!a.slopes.empty()) args.slopes = a.slopes.data();
    return args;
}

inline void Do(const program::Attention& a, Call& c) {
    dense::CausalArgs args = AttentionArgs(a, c, 0);
    args.out = View(c.out[0]);
    std::vector<float> lse(static_cast<size_t>(a.heads * c.out[0].rows));
    args.lse = lse.data();
    args.lse_stride = c.out[0].rows;
    std::vector<std::byte> scratch(static_cast<size_t>(ref::kCausal.causal_scratch_bytes(args)));
    InParts([&](int part, int parts) { ref::kCausal.causal(args, scratch, part, parts); });
}

inline void Do(const program::AttentionGrad& a, Call& c) {
    const dense::CausalGradArgs args{AttentionArgs(a.forward, c, 1), View(c.in[0]), View(c.out[0]),
                                     View(c.out[1]), View(c.out[2])};
    std::vector<std::byte> scratch(
        static_cast<size_t>(ref::kCausal.causal_grad_scratch_bytes(args)));
    InParts([&](int part, int parts) { ref::kCausal.causal_grad(args, scratch, part, parts); });
}

inline void Do(const program::MatMulGradInput&, Call& c) {
    const ref::MatMulGradInputArgs args{c.in[0].data.data(),  c.in[0].cols(), c.in[1].data.data(),
                                        c.in[0].rows,         c.in[0].cols(), c.in[1].cols(),
                                        c.out[0].data.data(), c.out[0].cols()};
    InParts([&](int part, int parts) { ref::MatMulGradInput(args, part, parts); });
}

inline void Do(const program::MatMulGradWeight&, Call& c) {
    const ref::MatMulGradWeightArgs args{c.in[0].data.data(), c.in[1].data.data(), c.in[0].cols(),
                                         c.in[1].cols(),      c.in[0].rows,        c.in[0].cols(),
                                         c.in[1].cols(),      c.out[0].data.data()};
    InParts([&](int part, int parts) { ref::MatMulGradWeight(args, part, parts); });
}

inline void Do(const program::BiasGrad&, Call& c) {
    const dense::BiasGradArgs args{View(c.in[0]), c.in[0].rows, c.in[0].cols(),
                                   c.out[0].data.data()};
    InParts([&](int part, int parts) { ref::kRows.bias_grad(args, part, parts); });
}

inline dense::RmsNormGradArgs NormArgs(float eps, int64_t group, Call& c) {
    dense::RmsNormGradArgs args;
    args.dy = View(c.in[0]);
    args.x = View(c.in[1]);
    args.weight = c.in[2].data.data();
    args.eps = eps;
    args.rows = c.in[1].rows;
    args.cols = c.in[1].cols();
    args.group = group;
    args.dx = View(c.out[0]);
    args.dw = c.out[0].data.data();
    return args;
}

inline void Do(const program::RmsNormGradInput& a, Call& c) {
    const dense::RmsNormGradArgs args = NormArgs(a.eps, a.group, c);
    InParts([&](int part, int parts) { ref::kRows.norm_grad_input(args, part, parts); });
}

inline void Do(const program::RmsNormGradWeight& a, Call& c) {
    const dense::RmsNormGradArgs args = NormArgs(a.eps, a.group, c);
    InParts([&](int part, int parts) { ref::kRows.norm_grad_weight(args, part, parts); });
}

inline void Do(const program::GluGrad& a, Call& c) {
    const dense::GluGradArgs args{View(c.in[0]),  View(c.in[1]),  View(c.in[2]),  c.in[0].rows,
                                  c.in[0].cols(), View(c.out[0]), View(c.out[1]), a.activation};
    InParts([&](int part, int parts) { ref::kRows.glu_grad(args, part, parts); });
}

inline void Do(const program::EmbeddingGrad& a, Call& c) {
    const std::vector<int32_t> tokens = Ints(c.in[1]);
    const ref::EmbeddingGradArgs args{c.in[0].data.data(), c.in[0].cols(),      tokens.data(),
                                      c.in[0].rows,        a.first_row,         c.out[0].rows,
                                      c.in[0].cols(),      c.out[0].data.data()};
    InParts([&](int part, int parts) { ref::EmbeddingGrad(args, part, parts); });
}

inline void Do(const program::SelectRowsGrad&, Call& c) {
    const std::vector<int32_t> rows = Ints(c.in[1]);
    const ref::SelectRowsGradArgs args{c.in[0].data.data(),  c.in[0].cols(), rows.data(),
                                       c.in[0].rows,         c.out[0].rows,  c.out[0].cols(),
                                       c.out[0].data.data(), c.out[0].cols()};
    InParts([&](int part, int parts) { ref::SelectRowsGrad(args, part, parts); });
}

}  // namespace floats

template <typename Attributes, typename Real>
void Apply(const Attributes& attributes, OpCall<Real>& call) {
    if constexpr (std::is_same_v<Real, float> && requires { floats::Do(attributes, call); }) {
        floats::Do(attributes, call);
    } else if constexpr (requires { naive::Do(attributes, call); }) {
        naive::Do(attributes, call);
    } else {
        WEFT_CHECK(!"tested by the golden files of models, or by the curves of trainings");
    }
}

}  // namespace weft::support
