// Apply(): one op of the interpreter. In float, the ops that kernels/reference/backward.h defines
// are its kernels, each in two parts (one after the other); everything else is the naive loop.
#pragma once

#include "kernels/reference/backward.h"
#include "program/placement.h"
#include "support/naive_ops.h"

namespace weft::support {

namespace floats {

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

inline ref::CausalAttentionArgs AttentionArgs(const program::Attention& a, const Call& c,
                                              size_t first) {
    return {c.sequences,
            c.in[first].data.data(),
            c.in[first + 1].data.data(),
            c.in[first + 2].data.data(),
            c.in[first].cols(),
            c.in[first + 1].cols(),
            c.in[first + 2].cols(),
            a.heads,
            a.kv_heads,
            a.head_dim,
            a.first_head,
            a.group,
            a.first_kv_head,
            a.scale};
}

inline void Do(const program::Attention& a, Call& c) {
    const auto args = AttentionArgs(a, c, 0);
    InParts([&](int part, int parts) {
        ref::CausalAttention(args, c.out[0].data.data(), c.out[0].cols(), part, parts);
    });
}

inline void Do(const program::AttentionGrad& a, Call& c) {
    const ref::CausalAttentionGradArgs args{AttentionArgs(a.forward, c, 1),
                                            c.in[0].data.data(),
                                            c.in[0].cols(),
                                            c.out[0].data.data(),
                                            c.out[1].data.data(),
                                            c.out[2].data.data(),
                                            c.out[0].cols(),
                                            c.out[1].cols(),
                                            c.out[2].cols()};
    InParts([&](int part, int parts) { ref::CausalAttentionGrad(args, part, parts); });
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
    const ref::BiasGradArgs args{c.in[0].data.data(), c.in[0].cols(), c.in[0].rows, c.in[0].cols(),
                                 c.out[0].data.data()};
    InParts([&](int part, int parts) { ref::BiasGrad(args, part, parts); });
}

inline ref::RmsNormGradArgs NormArgs(float eps, int64_t group, Call& c) {
    ref::RmsNormGradArgs args;
    args.dy = c.in[0].data.data();
    args.x = c.in[1].data.data();
    args.dy_stride = args.x_stride = args.dx_stride = args.cols = c.in[1].cols();
    args.weight = c.in[2].data.data();
    args.eps = eps;
    args.rows = c.in[1].rows;
    args.group = group;
    args.dx = args.dw = c.out[0].data.data();
    return args;
}

inline void Do(const program::RmsNormGradInput& a, Call& c) {
    const ref::RmsNormGradArgs args = NormArgs(a.eps, a.group, c);
    InParts([&](int part, int parts) { ref::RmsNormGradInput(args, part, parts); });
}

inline void Do(const program::RmsNormGradWeight& a, Call& c) {
    const ref::RmsNormGradArgs args = NormArgs(a.eps, a.group, c);
    InParts([&](int part, int parts) { ref::RmsNormGradWeight(args, part, parts); });
}

inline void Do(const program::GluGrad& a, Call& c) {
    const int64_t cols = c.in[0].cols();
    const ref::GluGradArgs args{c.in[0].data.data(),
                                c.in[1].data.data(),
                                c.in[2].data.data(),
                                c.in[0].rows,
                                cols,
                                cols,
                                cols,
                                cols,
                                c.out[0].data.data(),
                                c.out[1].data.data(),
                                cols,
                                cols,
                                a.activation};
    InParts([&](int part, int parts) { ref::GluGrad(args, part, parts); });
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

inline void Do(const program::SoftmaxCrossEntropy&, Call& c) {
    const std::vector<int32_t> targets = Ints(c.in[1]);
    c.out[0].data[0] = ref::CrossEntropy(
        {c.in[0].data.data(), c.in[0].cols(), targets.data(), c.in[0].rows, c.in[0].cols()});
}

inline void Do(const program::SoftmaxCrossEntropyGrad&, Call& c) {
    const std::vector<int32_t> targets = Ints(c.in[2]);
    const ref::CrossEntropyArgs args{c.in[1].data.data(), c.in[1].cols(), targets.data(),
                                     c.in[1].rows, c.in[1].cols()};
    InParts([&](int part, int parts) {
        ref::CrossEntropyGrad(args, c.in[0].data[0], c.out[0].data.data(), c.out[0].cols(), part,
                              parts);
    });
}

}  // namespace floats

template <typename Attributes, typename Real>
void Apply(const Attributes& attributes, OpCall<Real>& call) {
    if constexpr (program::kOnlyForward<Attributes>) {
        WEFT_CHECK(!"tested by the golden files of whole models");
    } else if constexpr (std::is_same_v<Real, float> &&
                         requires { floats::Do(attributes, call); }) {
        floats::Do(attributes, call);
    } else {
        naive::Do(attributes, call);
    }
}

}  // namespace weft::support
