// The row-wise kernels, written once for vectors of any width: RMS norm, RoPE, KV write, SwiGLU,
// add, and the exponentials that they and attention share.
//
// Simd is the type of an instruction set (avx2/simd.h, avx512/simd.h). Everything here is a
// template over it, so that code of one instruction set never stands in for another's at link
// time. Tails are computed by the same operations as whole vectors: where an element stands in a
// vector, or a row in a part, does not change its bits.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"

namespace weft::kernels {

// 2^x, relative error below 1e-7 for x in [-126, 0]; 2^-126 below that (callers want "about
// nothing" there, and no denormals). A NaN gives NaN. Polynomial: minimax on [-0.5, 0.5].
template <typename Simd>
inline typename Simd::Float Exp2(typename Simd::Float x) {
    x = Simd::Max(Simd::Set(-126.0f), x);
    const auto whole = Simd::Round(x);
    const auto r = Simd::Sub(x, whole);
    auto y = Simd::Set(1.534581242594868e-4f);
    y = Simd::Fma(y, r, Simd::Set(1.3399930903688073e-3f));
    y = Simd::Fma(y, r, Simd::Set(9.618489071726799e-3f));
    y = Simd::Fma(y, r, Simd::Set(5.550328642129898e-2f));
    y = Simd::Fma(y, r, Simd::Set(2.4022646248340607e-1f));
    y = Simd::Fma(y, r, Simd::Set(6.931471824645996e-1f));
    y = Simd::Fma(y, r, Simd::Set(1.0f));
    return Simd::Scale(y, whole);
}

// e^x over all floats, relative error below 1.2e-7 where the result is normal; infinity beyond
// 88.7. The argument is reduced by ln 2 in two pieces (Cody and Waite 1980).
template <typename Simd>
inline typename Simd::Float Exp(typename Simd::Float x) {
    x = Simd::Min(Simd::Set(89.0f), Simd::Max(Simd::Set(-104.0f), x));
    const auto whole = Simd::Round(Simd::Mul(x, Simd::Set(1.44269504f)));
    auto r = Simd::Fnma(whole, Simd::Set(0.693359375f), x);
    r = Simd::Fnma(whole, Simd::Set(-2.12194440e-4f), r);
    auto y = Simd::Set(1.381461275741458e-3f);
    y = Simd::Fma(y, r, Simd::Set(8.368710055947304e-3f));
    y = Simd::Fma(y, r, Simd::Set(4.166838899254799e-2f));
    y = Simd::Fma(y, r, Simd::Set(1.666652113199234e-1f));
    y = Simd::Fma(y, r, Simd::Set(4.999999403953552e-1f));
    y = Simd::Fma(y, Simd::Mul(r, r), r);
    return Simd::Scale(Simd::Add(y, Simd::Set(1.0f)), whole);
}

// tanh(x), relative error below 4e-7: an odd polynomial where |x| < 0.625 (minimax; Moshier's
// Cephes library has the same form), 1 - 2 / (e^2x + 1) beyond.
template <typename Simd>
inline typename Simd::Float Tanh(typename Simd::Float x) {
    const auto one = Simd::Set(1.0f);
    const auto z = Simd::Mul(x, x);
    auto p = Simd::Set(-5.70498872745e-3f);
    p = Simd::Fma(p, z, Simd::Set(2.06390887954e-2f));
    p = Simd::Fma(p, z, Simd::Set(-5.37397155531e-2f));
    p = Simd::Fma(p, z, Simd::Set(1.33314422036e-1f));
    p = Simd::Fma(p, z, Simd::Set(-3.33332819422e-1f));
    const auto small = Simd::Fma(Simd::Mul(p, z), x, x);
    const auto e = Exp<Simd>(Simd::Add(x, x));
    const auto large = Simd::Sub(one, Simd::Div(Simd::Set(2.0f), Simd::Add(e, one)));
    return Simd::WhereLess(Simd::Abs(x), Simd::Set(0.625f), small, large);
}

// Calls on_vector(i) for each whole vector of [begin, end), then on_tail(i, count) for the rest.
template <typename Simd, typename OnVector, typename OnTail>
inline void ForVectors(int64_t begin, int64_t end, OnVector on_vector, OnTail on_tail) {
    int64_t i = begin;
    for (; i + Simd::kLanes <= end; i += Simd::kLanes) on_vector(i);
    if (i < end) on_tail(i, end - i);
}

// Sums squares in four vectors, whose lanes meet only at the end.
template <typename Simd, typename T>
inline float SumOfSquares(const T* x, int64_t count) {
    using Float = typename Simd::Float;
    constexpr int64_t kStep = 4 * Simd::kLanes;
    Float sums[4] = {Simd::Zero(), Simd::Zero(), Simd::Zero(), Simd::Zero()};
    int64_t i = 0;
    for (; i + kStep <= count; i += kStep) {
        for (int k = 0; k < 4; ++k) {
            const Float value = Simd::Load(x + i + k * Simd::kLanes);
            sums[k] = Simd::Fma(value, value, sums[k]);
        }
    }
    ForVectors<Simd>(
        i, count,
        [&](int64_t at) {
            const Float value = Simd::Load(x + at);
            sums[0] = Simd::Fma(value, value, sums[0]);
        },
        [&](int64_t at, int64_t left) {
            const Float value = Simd::LoadFirst(x + at, left);
            sums[1] = Simd::Fma(value, value, sums[1]);
        });
    return Simd::Sum(Simd::Add(Simd::Add(sums[0], sums[1]), Simd::Add(sums[2], sums[3])));
}

// y[i] = map(x[i]) over a part of `count` elements.
template <typename Simd, typename Map>
inline void MapElements(const float* x, float* y, int64_t count, int part, int parts, Map map) {
    const Range share = Share(count, 16, part, parts);
    ForVectors<Simd>(
        share.begin, share.end, [&](int64_t i) { Simd::Store(y + i, map(Simd::Load(x + i))); },
        [&](int64_t i, int64_t left) {
            Simd::StoreFirst(y + i, map(Simd::LoadFirst(x + i, left)), left);
        });
}

template <typename Simd>
void RmsNormRows(const RmsNormArgs& args, int part, int parts) {
    const int64_t groups = args.cols / args.group;
    const Range share = Share(args.rows * groups, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / groups;
        const int64_t column = unit % groups * args.group;
        const float* x = args.x + row * args.x_stride + column;
        float* y = args.y + row * args.y_stride + column;
        const float mean =
            args.squares == nullptr
                ? SumOfSquares<Simd>(x, args.group) / static_cast<float>(args.group)
                : args.squares[row * args.squares_stride] / static_cast<float>(args.whole);
        const auto scale = Simd::Set(1.0f / __builtin_sqrtf(mean + args.eps));
        if (args.weight == nullptr) {
            MapElements<Simd>(x, y, args.group, 0, 1,
                              [&](typename Simd::Float value) { return Simd::Mul(value, scale); });
            continue;
        }
        ForVectors<Simd>(
            0, args.group,
            [&](int64_t i) {
                const auto scaled = Simd::Mul(Simd::Load(x + i), scale);
                Simd::Store(y + i, Simd::Mul(scaled, Simd::Load(args.weight + i)));
            },
            [&](int64_t i, int64_t left) {
                const auto scaled = Simd::Mul(Simd::LoadFirst(x + i, left), scale);
                const auto weight = Simd::LoadFirst(args.weight + i, left);
                Simd::StoreFirst(y + i, Simd::Mul(scaled, weight), left);
            });
    }
}

// A rotation: (first, second) becomes (first * c - second * s, second * c + first * s).
template <typename Simd>
struct Rotated {
    using Float = typename Simd::Float;
    Rotated(Float first, Float second, Float c, Float s)
        : a(Simd::Fnma(second, s, Simd::Mul(first, c))),
          b(Simd::Fma(first, s, Simd::Mul(second, c))) {}
    Float a, b;
};

template <typename Simd, typename T>
inline void RotateHalves(const T* x, const float* cosine, const float* sine, float sign,
                         int64_t pairs, T* y) {
    const auto signs = Simd::Set(sign);
    ForVectors<Simd>(
        0, pairs,
        [&](int64_t i) {
            const Rotated<Simd> r(Simd::Load(x + i), Simd::Load(x + pairs + i),
                                  Simd::Load(cosine + i), Simd::Mul(signs, Simd::Load(sine + i)));
            Simd::Store(y + i, r.a);
            Simd::Store(y + pairs + i, r.b);
        },
        [&](int64_t i, int64_t left) {
            const Rotated<Simd> r(Simd::LoadFirst(x + i, left),
                                  Simd::LoadFirst(x + pairs + i, left),
                                  Simd::LoadFirst(cosine + i, left),
                                  Simd::Mul(signs, Simd::LoadFirst(sine + i, left)));
            Simd::StoreFirst(y + i, r.a, left);
            Simd::StoreFirst(y + pairs + i, r.b, left);
        });
}

template <typename Simd, typename T>
inline void RotateNeighbours(const T* x, const float* cosine, const float* sine, float sign,
                             int64_t pairs, T* y) {
    using Float = typename Simd::Float;
    const Float signs = Simd::Set(sign);
    const auto rotate = [&](Float low, Float high, Float c, Float s, Float* low_out,
                            Float* high_out) {
        Float first, second;
        Simd::Unzip(low, high, &first, &second);
        const Rotated<Simd> r(first, second, c, Simd::Mul(signs, s));
        Simd::Zip(r.a, r.b, low_out, high_out);
    };
    ForVectors<Simd>(
        0, pairs,
        [&](int64_t i) {
            Float low, high;
            rotate(Simd::Load(x + 2 * i), Simd::Load(x + 2 * i + Simd::kLanes),
                   Simd::Load(cosine + i), Simd::Load(sine + i), &low, &high);
            Simd::Store(y + 2 * i, low);
            Simd::Store(y + 2 * i + Simd::kLanes, high);
        },
        [&](int64_t i, int64_t left) {
            T pair[2 * Simd::kLanes] = {};
            std::memcpy(pair, x + 2 * i, static_cast<size_t>(2 * left) * sizeof(T));
            Float low, high;
            rotate(Simd::Load(pair), Simd::Load(pair + Simd::kLanes),
                   Simd::LoadFirst(cosine + i, left), Simd::LoadFirst(sine + i, left), &low, &high);
            Simd::Store(pair, low);
            Simd::Store(pair + Simd::kLanes, high);
            std::memcpy(y + 2 * i, pair, static_cast<size_t>(2 * left) * sizeof(T));
        });
}

template <typename Simd>
void RopeRows(const RopeArgs& args, int part, int parts) {
    const int64_t pairs = args.rotary_dim / 2;
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    int64_t row = share.begin / args.heads;
    int64_t head = share.begin % args.heads;
    for (int64_t unit = share.begin; unit < share.end; ++unit, ++head) {
        if (head == args.heads) {
            head = 0;
            ++row;
        }
        const float* x = args.x + row * args.x_stride + head * args.head_dim;
        float* y = args.y + row * args.y_stride + head * args.head_dim;
        const float* cosine = args.cos_sin + row * args.rotary_dim;
        if (args.neighbours) {
            RotateNeighbours<Simd>(x, cosine, cosine + pairs, args.sign, pairs, y);
        } else {
            RotateHalves<Simd>(x, cosine, cosine + pairs, args.sign, pairs, y);
        }
        for (int64_t i = args.rotary_dim; i < args.head_dim && x != y; ++i) y[i] = x[i];
    }
}

// One gated unit; `u` of tensor/activation.h goes through the same sigmoid for all of them.
template <typename Simd, Activation activation>
inline typename Simd::Float Gated(typename Simd::Float gate, typename Simd::Float up) {
    using Float = typename Simd::Float;
    Float minus_u = Simd::Sub(Simd::Zero(), gate);
    if constexpr (activation == Activation::kGeluTanh) {
        const Float cube = Simd::Mul(Simd::Mul(gate, gate), gate);
        minus_u = Simd::Mul(Simd::Set(-1.5957691216f), Simd::Fma(Simd::Set(0.044715f), cube, gate));
    }
    if constexpr (activation == Activation::kClampedSilu) {
        gate = Simd::Min(Simd::Set(7.0f), gate);
        minus_u = Simd::Mul(Simd::Set(-1.702f), gate);
        up =
            Simd::Add(Simd::Min(Simd::Set(7.0f), Simd::Max(Simd::Set(-7.0f), up)), Simd::Set(1.0f));
    }
    const Float below = Simd::Add(Simd::Set(1.0f), Exp<Simd>(minus_u));
    return Simd::Mul(Simd::Div(gate, below), up);
}

template <typename Simd, Activation activation>
void GluRowsOf(const GluArgs& args, int part, int parts) {
    using Float = typename Simd::Float;
    const auto gated = Gated<Simd, activation>;
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t at = share.begin; at < share.end;) {
        const int64_t row = at / args.cols;
        const int64_t begin = at % args.cols;
        const int64_t end = std::min(args.cols, begin + share.end - at);
        const float* gate = args.gate + row * args.gate_stride;
        const float* up = args.up + row * args.up_stride;
        float* out = args.out + row * args.out_stride;
        ForVectors<Simd>(
            begin, end,
            [&](int64_t i) {
                Simd::Store(out + i, gated(Simd::Load(gate + i), Simd::Load(up + i)));
            },
            [&](int64_t i, int64_t left) {
                const Float value =
                    gated(Simd::LoadFirst(gate + i, left), Simd::LoadFirst(up + i, left));
                Simd::StoreFirst(out + i, value, left);
            });
        at += end - begin;
    }
}

template <typename Simd>
void GluRows(const GluArgs& args, int part, int parts) {
    switch (args.activation) {
        case Activation::kSilu: return GluRowsOf<Simd, Activation::kSilu>(args, part, parts);
        case Activation::kGeluTanh:
            return GluRowsOf<Simd, Activation::kGeluTanh>(args, part, parts);
        case Activation::kClampedSilu:
            return GluRowsOf<Simd, Activation::kClampedSilu>(args, part, parts);
    }
}

template <typename Simd>
void ScaleRows(const ScaleArgs& args, int part, int parts) {
    const auto factor = Simd::Set(args.factor);
    MapElements<Simd>(args.x, args.y, args.rows * args.cols, part, parts,
                      [&](typename Simd::Float x) { return Simd::Mul(factor, x); });
}

template <typename Simd>
void SoftCapRows(const SoftCapArgs& args, int part, int parts) {
    const auto cap = Simd::Set(args.cap);
    MapElements<Simd>(
        args.x, args.y, args.rows * args.cols, part, parts,
        [&](typename Simd::Float x) { return Simd::Mul(cap, Tanh<Simd>(Simd::Div(x, cap))); });
}

template <typename Simd>
void AddBiasRows(const AddBiasArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t at = share.begin; at < share.end;) {
        const int64_t column = at % args.cols;
        const int64_t count = std::min(args.cols - column, share.end - at);
        const float *x = args.x + at, *bias = args.bias + column;
        float* y = args.y + at;
        ForVectors<Simd>(
            0, count,
            [&](int64_t i) {
                Simd::Store(y + i, Simd::Add(Simd::Load(x + i), Simd::Load(bias + i)));
            },
            [&](int64_t i, int64_t left) {
                const auto sum =
                    Simd::Add(Simd::LoadFirst(x + i, left), Simd::LoadFirst(bias + i, left));
                Simd::StoreFirst(y + i, sum, left);
            });
        at += count;
    }
}

template <typename Simd>
void AddRows(const AddArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    ForVectors<Simd>(
        share.begin, share.end,
        [&](int64_t i) {
            Simd::Store(args.out + i, Simd::Add(Simd::Load(args.a + i), Simd::Load(args.b + i)));
        },
        [&](int64_t i, int64_t left) {
            const auto sum =
                Simd::Add(Simd::LoadFirst(args.a + i, left), Simd::LoadFirst(args.b + i, left));
            Simd::StoreFirst(args.out + i, sum, left);
        });
}

// Rounds kLanes floats at a time to F32, F16 or BF16 elements.
template <typename Simd>
inline void StoreAs(DType dtype, std::byte* to, typename Simd::Float x) {
    if (dtype == DType::kF32) return Simd::Store(reinterpret_cast<float*>(to), x);
    if (dtype == DType::kF16) return Simd::StoreF16(to, x);
    Simd::StoreBF16(to, x);
}

// One row of floats to `dtype`: `to` takes whole vectors, so it has room for up to kLanes more.
template <typename Simd>
inline void RoundRow(DType dtype, const float* row, int64_t count, int64_t element, std::byte* to) {
    ForVectors<Simd>(
        0, count, [&](int64_t i) { StoreAs<Simd>(dtype, to + i * element, Simd::Load(row + i)); },
        [&](int64_t i, int64_t left) {
            StoreAs<Simd>(dtype, to + i * element, Simd::LoadFirst(row + i, left));
        });
}

// F32, F16 and BF16 caches; head_dim at most 512.
template <typename Simd>
void KvWriteRows(const KvWriteArgs& args, int part, int parts) {
    const KvCache& keys = args.k_cache;
    const KvCache& values = args.v_cache;
    const int64_t head_dim = keys.head_dim;
    const int64_t element = keys.dtype == DType::kF32 ? 4 : 2;
    alignas(64) std::byte rounded[(512 + Simd::kLanes) * 4];
    for (const Sequence& sequence : args.sequences) {
        const Range share = Share(sequence.row_count * keys.kv_heads, 1, part, parts);
        for (int64_t unit = share.begin; unit < share.end; ++unit) {
            const int64_t head = unit / sequence.row_count;
            const int64_t index = unit % sequence.row_count;
            const int64_t row = sequence.row_begin + index;
            const int64_t position = sequence.position + index;
            const int64_t page = sequence.pages.data()[position / keys.page_tokens];
            const int64_t slot = position % keys.page_tokens;
            const int64_t lane = slot % kSlotGroup;
            RoundRow<Simd>(keys.dtype, args.k + row * args.k_stride + head * head_dim, head_dim,
                           element, rounded);
            std::byte* to = keys.Row(page, head, slot - lane) + lane * element;
            for (int64_t d = 0; d < head_dim; ++d) {
                std::byte* at = to + d * kSlotGroup * element;
                if (element == 2) {
                    std::memcpy(at, rounded + d * 2, 2);
                } else {
                    std::memcpy(at, rounded + d * 4, 4);
                }
            }
            RoundRow<Simd>(keys.dtype, args.v + row * args.v_stride + head * head_dim, head_dim,
                           element, rounded);
            std::memcpy(values.Row(page, head, slot), rounded,
                        static_cast<size_t>(head_dim * element));
        }
    }
}

}  // namespace weft::kernels
