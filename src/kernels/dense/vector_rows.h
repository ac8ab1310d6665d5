// The kernels of dense/rows.h, written once for vectors of any width. Simd is the type of an
// instruction set (avx2/simd.h, avx512/simd.h) with a square root besides.
#pragma once

#include <cmath>

#include "kernels/dense/rows.h"
#include "kernels/vector_ops.h"

namespace weft::kernels::dense {

// Calls on(i, load, store) for each vector of [0, count): load(x) gives x[i..], zeros behind the
// end; store(y, value) leaves what is behind the end.
template <typename Simd, typename On>
inline void ForElements(int64_t begin, int64_t end, On on) {
    using Float = typename Simd::Float;
    ForVectors<Simd>(
        begin, end,
        [&](int64_t i) {
            on([i](const float* x) { return Simd::Load(x + i); },
               [i](float* y, Float value) { Simd::Store(y + i, value); });
        },
        [&](int64_t i, int64_t left) {
            on([i, left](const float* x) { return Simd::LoadFirst(x + i, left); },
               [i, left](float* y, Float value) { Simd::StoreFirst(y + i, value, left); });
        });
}

template <typename Simd>
inline float InverseRms(const float* x, int64_t count, float eps) {
    const float mean = SumOfSquares<Simd>(x, count) / static_cast<float>(count);
    return 1.0f / __builtin_sqrtf(mean + eps);
}

template <typename Simd>
void NormGradInputRows(const NormGradArgs& call, int part, int parts) {
    using Float = typename Simd::Float;
    const auto& args = call.args;
    const int64_t groups = args.cols / args.group;
    const Range share = Share(args.rows * groups, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / groups, column = unit % groups * args.group;
        const float* dy = args.dy + row * args.dy_stride + column;
        const float* x = args.x + row * args.x_stride + column;
        float* dx = args.dx + row * args.dx_stride + column;
        const float inverse = InverseRms<Simd>(x, args.group, args.eps);
        if (call.inverse != nullptr) call.inverse[unit] = inverse;
        Float along = Simd::Zero();  // sum of dy * w * x
        ForElements<Simd>(0, args.group, [&](auto load, auto) {
            along = Simd::Fma(Simd::Mul(load(dy), load(args.weight)), load(x), along);
        });
        const Float scale = Simd::Set(inverse);
        const Float pull =
            Simd::Set(inverse * inverse * Simd::Sum(along) / static_cast<float>(args.group));
        ForElements<Simd>(0, args.group, [&](auto load, auto store) {
            const Float weighted = Simd::Mul(load(dy), load(args.weight));
            store(dx, Simd::Mul(scale, Simd::Fnma(load(x), pull, weighted)));
        });
    }
}

template <typename Simd>
void NormGradWeightRows(const NormGradArgs& call, int part, int parts) {
    using Float = typename Simd::Float;
    const auto& args = call.args;
    const int64_t groups = args.cols / args.group;
    const Range share = Share(args.group, 16, part, parts);
    if (share.begin == share.end) return;
    for (int64_t unit = 0; unit < args.rows * groups; ++unit) {
        const int64_t row = unit / groups, column = unit % groups * args.group;
        const float* dy = args.dy + row * args.dy_stride + column;
        const float* x = args.x + row * args.x_stride + column;
        const Float scale =
            Simd::Set(call.inverse != nullptr ? call.inverse[unit]
                                              : InverseRms<Simd>(x, args.group, args.eps));
        ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
            const Float product = Simd::Mul(load(dy), load(x));
            store(args.dw, Simd::Fma(product, scale, load(args.dw)));
        });
    }
}

template <typename Simd, bool kGelu>
void GluGradRowsOf(const reference::GluGradArgs& args, int part, int parts) {
    using Float = typename Simd::Float;
    const Float one = Simd::Set(1.0f), twice_root = Simd::Set(1.5957691216f);  // sqrt(8 / pi)
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* dout = args.dout + row * args.dout_stride;
        const float* gates = args.gate + row * args.gate_stride;
        const float* ups = args.up + row * args.up_stride;
        float* dgate = args.dgate + row * args.dgate_stride;
        float* dup = args.dup + row * args.dup_stride;
        ForElements<Simd>(0, args.cols, [&](auto load, auto store) {
            const Float gate = load(gates);
            Float u = gate, slope = gate;  // gate times the slope of u
            if constexpr (kGelu) {
                const Float square = Simd::Mul(Simd::Mul(Simd::Set(0.044715f), gate), gate);
                const Float scaled = Simd::Mul(twice_root, gate);
                u = Simd::Fma(scaled, square, scaled);
                slope = Simd::Fma(Simd::Mul(Simd::Set(3.0f), scaled), square, scaled);
            }
            const Float below = Simd::Add(one, Exp<Simd>(Simd::Sub(Simd::Zero(), u)));
            const Float sigmoid = Simd::Div(one, below);
            const Float passed = Simd::Mul(load(dout), sigmoid);
            const Float turn = Simd::Fma(slope, Simd::Sub(one, sigmoid), one);
            const Float up = load(ups);
            store(dup, Simd::Mul(passed, gate));
            store(dgate, Simd::Mul(Simd::Mul(passed, up), turn));
        });
    }
}

template <typename Simd>
void GluGradRows(const reference::GluGradArgs& args, int part, int parts) {
    WEFT_CHECK(args.activation != Activation::kClampedSilu);
    args.activation == Activation::kGeluTanh ? GluGradRowsOf<Simd, true>(args, part, parts)
                                             : GluGradRowsOf<Simd, false>(args, part, parts);
}

// The largest of x.
template <typename Simd>
inline float LargestOf(const float* x, int64_t count) {
    auto most = Simd::Set(x[0]);
    ForVectors<Simd>(
        0, count, [&](int64_t i) { most = Simd::Max(Simd::Load(x + i), most); },
        [&](int64_t i, int64_t left) {
            const auto last = Simd::LoadFirst(x + i, left);
            most = Simd::Max(Simd::Select(left, last, most), most);
        });
    return Simd::Largest(most);
}

// x becomes e^(x - largest); gives the sum.
template <typename Simd>
inline float SumOfExp(float* x, int64_t count, float largest) {
    using Float = typename Simd::Float;
    const Float shift = Simd::Set(largest);
    Float sum = Simd::Zero();
    ForVectors<Simd>(
        0, count,
        [&](int64_t i) {
            const Float e = Exp<Simd>(Simd::Sub(Simd::Load(x + i), shift));
            Simd::Store(x + i, e);
            sum = Simd::Add(sum, e);
        },
        [&](int64_t i, int64_t left) {
            const Float e = Exp<Simd>(Simd::Sub(Simd::LoadFirst(x + i, left), shift));
            Simd::StoreFirst(x + i, e, left);
            sum = Simd::Add(sum, Simd::Select(left, e, Simd::Zero()));
        });
    return Simd::Sum(sum);
}

template <typename Simd>
void LossRows(const LossArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* logits = args.logits + row * args.logits_stride;
        const int32_t target = args.targets[row];
        if (target < 0) {
            std::fill_n(logits, args.cols, 0.0f);
            args.losses[row] = 0;
            continue;
        }
        const float chosen = logits[target];
        const float largest = LargestOf<Simd>(logits, args.cols);
        const float sum = SumOfExp<Simd>(logits, args.cols, largest);
        args.losses[row] = std::log(sum) + (largest - chosen);
        const auto factor = Simd::Set(args.dloss / sum);
        MapElements<Simd>(logits, logits, args.cols, 0, 1,
                          [&](typename Simd::Float x) { return Simd::Mul(x, factor); });
        logits[target] -= args.dloss;
    }
}

template <typename Simd>
void AdamWElements(const AdamWArgs& args, int part, int parts) {
    using Float = typename Simd::Float;
    const Range share = Share(args.count, 16, part, parts);
    const Float beta1 = Simd::Set(args.beta1), beta2 = Simd::Set(args.beta2);
    const Float rest1 = Simd::Set(1 - args.beta1), rest2 = Simd::Set(1 - args.beta2);
    const Float kept = Simd::Set(1 - args.rate * args.decay);
    const Float step = Simd::Set(args.rate / args.correction1);
    const Float root = Simd::Set(1.0f / __builtin_sqrtf(args.correction2));
    const Float eps = Simd::Set(args.eps), grad_scale = Simd::Set(args.grad_scale);
    int64_t at = share.begin;
    ForElements<Simd>(share.begin, share.end, [&](auto load, auto store) {
        const Float g = Simd::Mul(load(args.g), grad_scale);
        const Float m = Simd::Fma(beta1, load(args.m), Simd::Mul(rest1, g));
        const Float v = Simd::Fma(beta2, load(args.v), Simd::Mul(Simd::Mul(rest2, g), g));
        const Float below = Simd::Fma(Simd::Sqrt(v), root, eps);
        const Float change = Simd::Div(Simd::Mul(step, m), below);
        const Float p = Simd::Sub(Simd::Mul(load(args.p), kept), change);
        store(args.m, m);
        store(args.v, v);
        store(args.p, p);
        if (args.p_bf16 != nullptr) {
            uint16_t halves[Simd::kLanes];
            Simd::StoreBF16(halves, p);
            std::copy_n(halves, std::min<int64_t>(Simd::kLanes, share.end - at), args.p_bf16 + at);
            at += Simd::kLanes;
        }
    });
}

}  // namespace weft::kernels::dense
