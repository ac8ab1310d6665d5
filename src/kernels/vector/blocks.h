// Products of the 16 rows of a packed block with a tile of T tokens, for each type (layouts:
// kernels/weight_tiles.h). The code uses the same integers and the same float operations as
// avx512/blocks.h.
//
// A Block type has kType, kUnits (activation blocks per weight block) and
//   Times<T>(w, x, sums): sums[t] += the block at w times the activations x[t] (tokens.h); blocks
//   that are computed in steps take a StepFetch as their last argument (prefetch.h);
// if kUnits is not 1, also
//   TimesUnit<T>(w, unit, x, sums): the same for one unit of the block.
// Products are u8 * s8. Depending on the instruction set, pairs of products are added to 16-bit
// sums (Simd::kPairSums) or four products to 32-bit sums (Simd::Short). A 16-bit sum has 16
// products of 32 columns, or 8 of 16. Its result always fits, although it may wrap on the way: at
// most 16 * 15 * 127 for 4-bit weights, and from the zero point on, 16 * 16 * 127 for 5-bit weights
// and 8 * 32 * 127 for 6-bit weights. 5-bit weights without a zero point are given one, whose
// products are subtracted at the end.
#pragma once

#include <cstdint>

#include "kernels/vector/dots.h"
#include "kernels/vector/steps.h"
#include "tensor/quant_bytes.h"

namespace weft::kernels::WEFT_SET {

// These functions load the dwords, f16 or bytes of all rows.
WEFT_INLINE Ints LoadBytes(const std::byte* p) {
    return Strip::LoadInt(p);
}
WEFT_INLINE Floats LoadHalves(const std::byte* p) {
    return Strip::LoadF16(p);
}
WEFT_INLINE Ints WideU8(const std::byte* p) {
    return Strip::WidenU8(p);
}
WEFT_INLINE Ints WideI8(const std::byte* p) {
    return Strip::WidenI8(p);
}

WEFT_INLINE Ints LowNibbles(Ints v) {
    return Strip::And(v, Strip::Set8(15));
}
WEFT_INLINE Ints HighNibbles(Ints v) {
    return LowNibbles(Strip::Right8(v, 4));
}

// Returns sums + scale * (scale of x) * dots, for 32-bit dots.
WEFT_INLINE Floats AddScaled(Floats scale, const ActivationBlock& x, Ints dots, Floats sums) {
    const Floats both = Strip::Mul(scale, Strip::Set(x.scale));
    return Strip::Fma(Strip::FromInt(dots), both, sums);
}

WEFT_INLINE Floats AddMin(Floats min, const ActivationBlock& x, Floats sums) {
    return Strip::Fma(min, Strip::Set(x.scaled_sum), sums);
}

// Starts the sums at `from` of each token, moved left by kLeft bits (negative: right). from: the
// member of an ActivationBlock for a zero point.
template <int T, int kLeft, typename From>
WEFT_INLINE void StartAt(Tokens x, const From& from, Shorts (&dots)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) dots[t] = Strip::StartShort(from(x[t]), kLeft);
    Arrange<T>(dots);
}
template <int T, int kLeft>
WEFT_INLINE void StartFrom8(Tokens x, Shorts (&dots)[T]) {
    StartAt<T, kLeft>(
        x, [](const ActivationBlock& own) { return own.from_8; }, dots);
}

template <int T>
WEFT_INLINE void DotNibbles(const std::byte* w, Tokens x, Shorts (&dots)[T]) {
    const auto low = [&](int i) { return LowNibbles(LoadBytes(w + 64 * i)); };
    const auto high = [&](int i) { return HighNibbles(LoadBytes(w + 64 * i)); };
    DotHalves<T, 4>(low, high, x, 0, dots);
    Settle<T>(dots);
}

// Adds bit kBit of each byte of `bits` to the nibbles as the fifth bit.
template <int kBit>
WEFT_INLINE Ints FiveBits(Ints nibbles, Ints bits) {
    Ints moved = bits;
    if constexpr (kBit < 4) moved = Strip::Left8(bits, 4 - kBit);
    if constexpr (kBit > 4) moved = Strip::Right8(bits, kBit - 4);
    return Strip::Or(nibbles, Strip::And(moved, Strip::Set8(16)));
}

// Multiplies 32 weights of 5 bits, packed as in Q5_0.
template <int T, int kPart = 0>
WEFT_INLINE void DotFiveBits(const std::byte* w, Ints bits, Tokens x, Shorts (&dots)[T]) {
    if constexpr (kPart < 4) {
        const auto low = [&](int i) {
            const Ints nibbles = LowNibbles(LoadBytes(w + 64 * (kPart + i)));
            return i == 0 ? FiveBits<kPart>(nibbles, bits) : FiveBits<kPart + 1>(nibbles, bits);
        };
        const auto high = [&](int i) {
            const Ints nibbles = HighNibbles(LoadBytes(w + 64 * (kPart + i)));
            return i == 0 ? FiveBits<kPart + 4>(nibbles, bits) : FiveBits<kPart + 5>(nibbles, bits);
        };
        DotHalves<T, 2>(low, high, x, 4 * kPart, dots);
        DotFiveBits<T, kPart + 2>(w, bits, x, dots);
    } else {
        Settle<T>(dots);
    }
}

// The 32-bit sums of dots that started at from_8, moved left by kLeft bits, minus that start.
template <int kLeft>
WEFT_INLINE Ints WithoutStart(Shorts dots, const ActivationBlock& x) {
    return Strip::Sub32(Strip::Whole(dots), Strip::Whole(Strip::StartShort(x.from_8, kLeft)));
}

// Q4_0, Q4_1, Q5_0 or Q5_1.
template <DType kOf>
struct BlockOf32 {
    static constexpr DType kType = kOf;
    static constexpr int64_t kUnits = 1;
    static constexpr bool kFive = kOf == DType::kQ5_0 || kOf == DType::kQ5_1;
    static constexpr bool kHasMin = kOf == DType::kQ4_1 || kOf == DType::kQ5_1;
    static constexpr bool kCentered = kOf == DType::kQ5_1 && Strip::kPairSums;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        constexpr int kScale = kFive ? 320 : 256;
        Shorts dots[T];
        if constexpr (kHasMin && !kCentered) {
            Zero<T>(dots);
        } else {
            StartFrom8<T, kFive ? 1 : 0>(x, dots);
        }
        if constexpr (kFive) {
            DotFiveBits<T>(w, LoadBytes(w + 256), x, dots);
        } else {
            DotNibbles<T>(w, x, dots);
        }
        const Floats scale = LoadHalves(w + kScale);
        [[maybe_unused]] const Floats min = kHasMin ? LoadHalves(w + kScale + 32) : Strip::Zero();
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const Ints all = kCentered ? WithoutStart<1>(dots[t], x[t]) : Strip::Whole(dots[t]);
            sums[t] = AddScaled(scale, x[t], all, sums[t]);
            if constexpr (kHasMin) sums[t] = AddMin(min, x[t], sums[t]);
        }
    }
};
using BlockQ4_0 = BlockOf32<DType::kQ4_0>;
using BlockQ4_1 = BlockOf32<DType::kQ4_1>;
using BlockQ5_0 = BlockOf32<DType::kQ5_0>;
using BlockQ5_1 = BlockOf32<DType::kQ5_1>;

// Computes 32-bit dot products of 32 weights, which are nibbles that index `table`.
template <int T>
WEFT_INLINE void DotChosen(const std::byte* w, Ints table, Tokens x, Ints (&dots)[T]) {
    Zero<T>(dots);
    const auto low = [&](int i) { return Strip::Choose(table, LowNibbles(LoadBytes(w + 64 * i))); };
    const auto high = [&](int i) {
        return Strip::Choose(table, HighNibbles(LoadBytes(w + 64 * i)));
    };
    DotHalves<T, 4, true>(low, high, x, 0, dots);
    Settle<T>(dots);
}

// sums[t] += scale * (scale of token t's activations) * dots[t].
template <int T>
WEFT_INLINE void AddAllScaled(Floats scale, Tokens x, const Ints (&dots)[T], Floats (&sums)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sums[t] = AddScaled(scale, x[t], dots[t], sums[t]);
}

struct BlockIQ4_NL {
    static constexpr DType kType = DType::kIQ4_NL;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        Ints dots[T];
        DotChosen<T>(w, Strip::Table(quant::kIq4Values.data()), x, dots);
        AddAllScaled<T>(LoadHalves(w + 256), x, dots, sums);
    }
};

struct BlockIQ4_XS : UnitByUnit<BlockIQ4_XS, 8> {
    static constexpr DType kType = DType::kIQ4_XS;
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int s, Tokens x, Floats (&sums)[T]) {
        const Ints table = Strip::Table(quant::kIq4Values.data());
        const Floats wide = Strip::FromInt(WideI8(w + 32 + 16 * s));
        const Floats scale = Strip::Mul(LoadHalves(w), wide);
        Ints dots[T];
        DotChosen<T>(w + 160 + 256 * s, table, x + s, dots);
        AddAllScaled<T>(scale, x + s, dots, sums);
    }
};

// The scale is 2^(e - 128), because the table holds doubled values. It is denormal for e below 2.
struct BlockMXFP4 {
    static constexpr DType kType = DType::kMXFP4;
    static constexpr int64_t kUnits = 1;
    WEFT_INLINE Floats Scale(const std::byte* p) {
        const Ints e = WideU8(p), one = Strip::Set32(1);
        const Ints normal = Strip::Left32(Strip::Sub32(e, one), 23);
        const Ints small = Strip::Left32(Strip::Add32(e, one), 21);  // for e of 0 and 1
        return Strip::AsFloat(Strip::Max32(normal, small));
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        Ints dots[T];
        DotChosen<T>(w, Strip::Table(quant::kMxfp4Values.data()), x, dots);
        AddAllScaled<T>(Scale(w + 256), x, dots, sums);
    }
};

// Two units of 32 columns; each half of a unit has its own scale.
struct BlockNVFP4 {
    static constexpr DType kType = DType::kNVFP4;
    static constexpr int64_t kUnits = 2;
    // The scale of 16 columns. p: the scale bytes of these columns.
    WEFT_INLINE Floats Scale(const std::byte* w, const std::byte* p) {
        const Ints bits = Strip::Add32(Strip::Left32(WideU8(p), 20), Strip::Set32(kNvScaleBase));
        return Strip::Mul(Strip::AsFloat(LoadBytes(w + 512)), Strip::AsFloat(bits));
    }
    template <int T, bool kHigh>
    WEFT_INLINE void TimesHalf(const std::byte* w, int unit, Ints table, Tokens x,
                               Floats (&sums)[T]) {
        Ints dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) {
            const Ints bytes = LoadBytes(w + 256 * unit + 64 * i);
            return Strip::Choose(table, kHigh ? HighNibbles(bytes) : LowNibbles(bytes));
        };
        Dot<T, 4, true>(weights, x + unit, kHigh ? 16 : 0, dots);
        Settle<T>(dots);
        const Floats scale = Scale(w, w + 576 + 16 * (2 * unit + (kHigh ? 1 : 0)));
        AddAllScaled<T>(scale, x + unit, dots, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
#pragma GCC unroll 1
        for (int unit = 0; unit < 2; ++unit) TimesUnit<T>(w, unit, x, sums);
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, Floats (&sums)[T]) {
        const Ints table = Strip::Table(quant::kMxfp4Values.data());
        TimesHalf<T, false>(w, unit, table, x, sums);
        TimesHalf<T, true>(w, unit, table, x, sums);
    }
};

// Block headers of W4 and W8: a float scale with the zero point in its low 8 bits.
struct Head {
    Floats scale;
    Ints zero;
};
WEFT_INLINE Head LoadHead(const std::byte* p) {
    const Ints head = LoadBytes(p);
    return {Strip::AsFloat(Strip::And(head, Strip::Set32(~255))),
            Strip::And(head, Strip::Set32(255))};
}

// -zero * (sum of the int8 activations in x).
WEFT_INLINE Ints TimesZeroPoint(Ints zero, const ActivationBlock& x) {
    return Strip::Mul32(zero, Strip::Set32(x.from_128 / 128));
}

struct BlockW4 {
    static constexpr DType kType = DType::kW4;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        Shorts dots[T];
        Zero<T>(dots);
        DotNibbles<T>(w, x, dots);
        const Head head = LoadHead(w + 256);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t];
            const Ints from = TimesZeroPoint(head.zero, own);
            const Ints all = Strip::Add32(Strip::Whole(dots[t]), from);
            sums[t] = AddScaled(head.scale, own, all, sums[t]);
        }
    }
};

// Codes from 0 to 255 are used as int8 with 128 subtracted, so 128 is also subtracted from the zero
// point.
struct BlockW8 {
    static constexpr DType kType = DType::kW8;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        const Head head = LoadHead(w + 512);
        const Ints zero = Strip::Sub32(head.zero, Strip::Set32(128));
        Ints dots[T];
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) dots[t] = TimesZeroPoint(zero, x[t]);
        Arrange<T>(dots);
        const auto weights = [&](int i) {
            return Strip::Xor(LoadBytes(w + 64 * i), Strip::Set8(-128));
        };
        Dot<T, 8, true>(weights, x, 0, dots);
        Settle<T>(dots);
        AddAllScaled<T>(head.scale, x, dots, sums);
    }
};

struct BlockQ8_0 {
    static constexpr DType kType = DType::kQ8_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        Ints dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) { return LoadBytes(w + 64 * i); };
        Dot<T, 8, true>(weights, x, 0, dots);
        Settle<T>(dots);
        AddAllScaled<T>(LoadHalves(w + 512), x, dots, sums);
    }
};

// Q4_K, or Q5_K with kFive. In Q5_K, the fifth bits precede the quants; bit j of each byte of dword
// i belongs to sub-block j.
template <bool kFive>
struct BlockOfScalesAndMinima {
    static constexpr DType kType = kFive ? DType::kQ5_K : DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    static constexpr int64_t kQuants = kFive ? 832 : 320;
    WEFT_INLINE Floats LoadU8(const std::byte* p) { return Strip::FromInt(WideU8(p)); }
    // The weights of dword i of sub-block j.
    template <bool kHigh>
    WEFT_INLINE Ints Weights(const std::byte* w, int j, int i) {
        const Ints bytes = LoadBytes(w + kQuants + j / 2 * 512 + 64 * i);
        const Ints weights = kHigh ? HighNibbles(bytes) : LowNibbles(bytes);
        if constexpr (!kFive) return weights;
        const Ints bit = Strip::Set8(1 << j);
        const Ints own = Strip::And(LoadBytes(w + 320 + 64 * i), bit);
        return Strip::Or(weights, Strip::And(Strip::Equal8(own, bit), Strip::Set8(16)));
    }
    WEFT_INLINE Floats Scale(const std::byte* w, int j) {
        return Strip::Mul(LoadHalves(w), LoadU8(w + 64 + 16 * j));
    }
    WEFT_INLINE Floats Min(const std::byte* w, int j) {
        const Floats minus_dmin = Strip::Sub(Strip::Zero(), LoadHalves(w + 32));
        return Strip::Mul(minus_dmin, LoadU8(w + 192 + 16 * j));
    }
    // Multiplies a sub-block; weights(i): its dword i.
    template <int T, typename Codes>
    WEFT_INLINE void TimesCodes(const Codes& weights, Floats scale, Floats min, Tokens x,
                                Floats (&sums)[T]) {
        constexpr bool kCentered = kFive && Strip::kPairSums;
        Shorts dots[T];
        if constexpr (kCentered) {
            StartFrom8<T, 1>(x, dots);
        } else {
            Zero<T>(dots);
        }
        Dot<T, 8>(weights, x, 0, dots);
        Settle<T>(dots);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const Ints all = kCentered ? WithoutStart<1>(dots[t], x[t]) : Strip::Whole(dots[t]);
            sums[t] = AddMin(min, x[t], AddScaled(scale, x[t], all, sums[t]));
        }
    }
    // Multiplies sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int j, Tokens x, Floats (&sums)[T]) {
        const auto weights = [&](int i) { return Weights<kHigh>(w, j, i); };
        TimesCodes<T>(weights, Scale(w, j), Min(w, j), x + j, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int j = 0; j < 8; j += 2) {
            fetch(j / 2, 4);
            TimesSub<T, false>(w, j, x, sums);
            TimesSub<T, true>(w, j + 1, x, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int j, Tokens x, Floats (&sums)[T]) {
        if (j % 2 == 0) return TimesSub<T, false>(w, j, x, sums);
        TimesSub<T, true>(w, j, x, sums);
    }
};
using BlockQ4_K = BlockOfScalesAndMinima<false>;
using BlockQ5_K = BlockOfScalesAndMinima<true>;

// The bit layout of weights is described in avx512/blocks.h.
struct BlockQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int64_t kUnits = 8;
    // The weights of dword i of a step.
    template <int kGroup>
    WEFT_INLINE Ints Weights(const std::byte* quants, int i) {
        const Ints nibbles = LoadBytes(quants + i * 192 + kGroup % 2 * 64);
        const Ints pairs = LoadBytes(quants + i * 192 + 128);
        const Ints low = kGroup < 2 ? LowNibbles(nibbles) : HighNibbles(nibbles);
        const Ints high = kGroup == 0   ? Strip::Left8(pairs, 4)
                          : kGroup == 1 ? Strip::Left8(pairs, 2)
                          : kGroup == 2 ? pairs
                                        : Strip::Right8(pairs, 2);
        return Strip::Or(low, Strip::And(high, Strip::Set8(48)));
    }
    WEFT_INLINE Floats Scale(const std::byte* w, int i) {
        return Strip::Mul(LoadHalves(w), Strip::FromInt(WideI8(w + 32 + 16 * i)));
    }
    // Multiplies half s of a unit; weights(i): dword i of the half.
    template <int T, typename Codes>
    WEFT_INLINE void TimesCodes(const Codes& weights, Floats scale, int s, Tokens x,
                                Floats (&sums)[T]) {
        Shorts dots[T];
        StartAt<T, 0>(
            x, [s](const ActivationBlock& own) { return own.from_32[s]; }, dots);
        Dot<T, 4>(weights, x, 16 * s, dots);
        Settle<T>(dots);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            sums[t] = AddScaled(scale, x[t], Strip::Whole(dots[t]), sums[t]);
        }
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int step, Tokens x, Floats (&sums)[T]) {
        const int s = step % 2;
        const std::byte* quants = w + 288 + step * 4 * 192;
        const auto weights = [&](int i) { return Weights<kGroup>(quants, i); };
        TimesCodes<T>(weights, Scale(w, step / 2 * 8 + 2 * kGroup + s), s, x + kGroup, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int step = 0; step < 4; ++step) {
            fetch(step, 4);
            const Tokens x_half = x + step / 2 * 4;
            TimesGroup<T, 0>(w, step, x_half, sums);
            TimesGroup<T, 1>(w, step, x_half, sums);
            TimesGroup<T, 2>(w, step, x_half, sums);
            TimesGroup<T, 3>(w, step, x_half, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, Floats (&sums)[T]) {
        const int group = unit % 4;
        x = x + unit / 4 * 4;
// (With sanitizers, GCC removes the loop before it reads the pragma, and warns.)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC unroll 1
#endif
        for (int step = unit / 4 * 2; step < unit / 4 * 2 + 2; ++step) {
            if (group == 0) TimesGroup<T, 0>(w, step, x, sums);
            if (group == 1) TimesGroup<T, 1>(w, step, x, sums);
            if (group == 2) TimesGroup<T, 2>(w, step, x, sums);
            if (group == 3) TimesGroup<T, 3>(w, step, x, sums);
        }
    }
};

}  // namespace weft::kernels::WEFT_SET
