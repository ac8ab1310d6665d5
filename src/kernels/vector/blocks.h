// Products of one vector of rows of a packed block with a tile of T tokens, for each type (layouts:
// kernels/weight_tiles.h). The code uses the same integers and the same float operations as
// avx512/blocks.h.
//
// A Block type has kType, kUnits (activation blocks per weight block) and
//   Times<T>(w, h, x, sums): sums[t] += vector h of the rows of the block at w times the
//   activations x[t] (tokens.h); blocks that are computed in steps take a StepFetch as their last
//   argument (prefetch.h);
// if kUnits is not 1, also
//   TimesUnit<T>(w, h, unit, x, sums): the same for one unit of the block.
// Products are u8 * s8. Depending on the instruction set, pairs of products are added to 16-bit
// sums or four products to 32-bit sums (Simd::Short). 16-bit sums never saturate: they are at most
// 8 * 2 * 15 * 127 for 4-bit weights, 4 * 2 * 31 * 127 for 5-bit weights, 2 * 2 * 63 * 127 for
// 6-bit weights.
#pragma once

#include <cstdint>

#include "kernels/vector/dots.h"
#include "kernels/vector/steps.h"
#include "tensor/quant_bytes.h"

namespace weft::kernels::WEFT_SET {

// These functions load vector h of the dwords, f16 or bytes at p.
WEFT_INLINE Int LoadBytes(const std::byte* p, int h) {
    return Simd::LoadInt(p + h * Simd::kLanes * 4);
}
WEFT_INLINE Float LoadHalves(const std::byte* p, int h) {
    return Simd::LoadF16(p + h * Simd::kLanes * 2);
}
WEFT_INLINE Int WideU8(const std::byte* p, int h) {
    return Simd::WidenU8(p + h * Simd::kLanes);
}
WEFT_INLINE Int WideI8(const std::byte* p, int h) {
    return Simd::WidenI8(p + h * Simd::kLanes);
}

WEFT_INLINE Int LowNibbles(Int v) {
    return Simd::And(v, Simd::Set8(15));
}
WEFT_INLINE Int HighNibbles(Int v) {
    return LowNibbles(Simd::Right8(v, 4));
}

// Returns sums + scale * (scale of x) * dots, for 32-bit dots.
WEFT_INLINE Float AddScaled(Float scale, const ActivationBlock& x, Int dots, Float sums) {
    const Float both = Simd::Mul(scale, Simd::Set(x.scale));
    return Simd::Fma(Simd::FromInt(dots), both, sums);
}

WEFT_INLINE Float AddMin(Float min, const ActivationBlock& x, Float sums) {
    return Simd::Fma(min, Simd::Set(x.scaled_sum), sums);
}

template <int T>
WEFT_INLINE void DotNibbles(const std::byte* w, int h, Tokens x, Int (&short_dots)[T]) {
    Zero<T>(short_dots);
    const auto low = [&](int i) { return LowNibbles(LoadBytes(w + 64 * i, h)); };
    const auto high = [&](int i) { return HighNibbles(LoadBytes(w + 64 * i, h)); };
    DotHalves<T, 4>(low, high, x, 0, short_dots);
    Settle<T>(short_dots);
}

// Adds bit kBit of each byte of `bits` to the nibbles as the fifth bit.
template <int kBit>
WEFT_INLINE Int FiveBits(Int nibbles, Int bits) {
    Int moved = bits;
    if constexpr (kBit < 4) moved = Simd::Left8(bits, 4 - kBit);
    if constexpr (kBit > 4) moved = Simd::Right8(bits, kBit - 4);
    return Simd::Or(nibbles, Simd::And(moved, Simd::Set8(16)));
}

// Computes 32-bit dot products of 32 weights of 5 bits, packed as in Q5_0.
template <int T, int kPart = 0>
WEFT_INLINE void DotFiveBits(const std::byte* w, int h, Int bits, Tokens x, Int (&dots)[T]) {
    if constexpr (kPart < 4) {
        Int short_dots[T];
        Zero<T>(short_dots);
        const auto low = [&](int i) {
            const Int nibbles = LowNibbles(LoadBytes(w + 64 * (kPart + i), h));
            return i == 0 ? FiveBits<kPart>(nibbles, bits) : FiveBits<kPart + 1>(nibbles, bits);
        };
        const auto high = [&](int i) {
            const Int nibbles = HighNibbles(LoadBytes(w + 64 * (kPart + i), h));
            return i == 0 ? FiveBits<kPart + 4>(nibbles, bits) : FiveBits<kPart + 5>(nibbles, bits);
        };
        DotHalves<T, 2>(low, high, x, 4 * kPart, short_dots);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const Int some = Simd::Whole(short_dots[t]);
            dots[t] = kPart == 0 ? some : Simd::Add32(dots[t], some);
        }
        DotFiveBits<T, kPart + 2>(w, h, bits, x, dots);
    } else {
        Settle<T>(dots);
    }
}

// Q4_0, Q4_1, Q5_0 or Q5_1.
template <DType kOf>
struct BlockOf32 {
    static constexpr DType kType = kOf;
    static constexpr int64_t kUnits = 1;
    static constexpr bool kFive = kOf == DType::kQ5_0 || kOf == DType::kQ5_1;
    static constexpr bool kHasMin = kOf == DType::kQ4_1 || kOf == DType::kQ5_1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        constexpr int kScale = kFive ? 320 : 256;
        Int dots[T];
        if constexpr (kFive) {
            DotFiveBits<T>(w, h, LoadBytes(w + 256, h), x, dots);
        } else {
            DotNibbles<T>(w, h, x, dots);
        }
        const Float scale = LoadHalves(w + kScale, h);
        [[maybe_unused]] const Float min = kHasMin ? LoadHalves(w + kScale + 32, h) : Simd::Zero();
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            Int all = kFive ? dots[t] : Simd::Whole(dots[t]);
            if constexpr (!kHasMin)
                all = Simd::Add32(all, Simd::Set32(x[t].from_8 * (kFive ? 2 : 1)));
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
WEFT_INLINE void DotChosen(const std::byte* w, int h, Int table, Tokens x, Int (&dots)[T]) {
    Zero<T>(dots);
    const auto low = [&](int i) {
        return Simd::Choose(table, LowNibbles(LoadBytes(w + 64 * i, h)));
    };
    const auto high = [&](int i) {
        return Simd::Choose(table, HighNibbles(LoadBytes(w + 64 * i, h)));
    };
    DotHalves<T, 4, true>(low, high, x, 0, dots);
    Settle<T>(dots);
}

// sums[t] += scale * (scale of token t's activations) * dots[t].
template <int T>
WEFT_INLINE void AddAllScaled(Float scale, Tokens x, const Int (&dots)[T], Float (&sums)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sums[t] = AddScaled(scale, x[t], dots[t], sums[t]);
}

struct BlockIQ4_NL {
    static constexpr DType kType = DType::kIQ4_NL;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        Int dots[T];
        DotChosen<T>(w, h, Simd::Table(quant::kIq4Values.data()), x, dots);
        AddAllScaled<T>(LoadHalves(w + 256, h), x, dots, sums);
    }
};

struct BlockIQ4_XS : UnitByUnit<BlockIQ4_XS, 8> {
    static constexpr DType kType = DType::kIQ4_XS;
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int s, Tokens x, Float (&sums)[T]) {
        const Int table = Simd::Table(quant::kIq4Values.data());
        const Float wide = Simd::FromInt(WideI8(w + 32 + 16 * s, h));
        const Float scale = Simd::Mul(LoadHalves(w, h), wide);
        Int dots[T];
        DotChosen<T>(w + 160 + 256 * s, h, table, x + s, dots);
        AddAllScaled<T>(scale, x + s, dots, sums);
    }
};

// The scale is 2^(e - 128), because the table holds doubled values. It is denormal for e below 2.
struct BlockMXFP4 {
    static constexpr DType kType = DType::kMXFP4;
    static constexpr int64_t kUnits = 1;
    WEFT_INLINE Float Scale(const std::byte* p, int h) {
        const Int e = WideU8(p, h), one = Simd::Set32(1);
        const Int normal = Simd::Left32(Simd::Sub32(e, one), 23);
        const Int small = Simd::Left32(Simd::Add32(e, one), 21);  // for e of 0 and 1
        return Simd::AsFloat(Simd::Max32(normal, small));
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        Int dots[T];
        DotChosen<T>(w, h, Simd::Table(quant::kMxfp4Values.data()), x, dots);
        AddAllScaled<T>(Scale(w + 256, h), x, dots, sums);
    }
};

// Two units of 32 columns; each half of a unit has its own scale.
struct BlockNVFP4 {
    static constexpr DType kType = DType::kNVFP4;
    static constexpr int64_t kUnits = 2;
    // The scale of 16 columns. p: the scale bytes of these columns.
    WEFT_INLINE Float Scale(const std::byte* w, const std::byte* p, int h) {
        const Int bits = Simd::Add32(Simd::Left32(WideU8(p, h), 20), Simd::Set32(kNvScaleBase));
        return Simd::Mul(Simd::AsFloat(LoadBytes(w + 512, h)), Simd::AsFloat(bits));
    }
    template <int T, bool kHigh>
    WEFT_INLINE void TimesHalf(const std::byte* w, int h, int unit, Int table, Tokens x,
                               Float (&sums)[T]) {
        Int dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) {
            const Int bytes = LoadBytes(w + 256 * unit + 64 * i, h);
            return Simd::Choose(table, kHigh ? HighNibbles(bytes) : LowNibbles(bytes));
        };
        Dot<T, 4, true>(weights, x + unit, kHigh ? 16 : 0, dots);
        Settle<T>(dots);
        const Float scale = Scale(w, w + 576 + 16 * (2 * unit + (kHigh ? 1 : 0)), h);
        AddAllScaled<T>(scale, x + unit, dots, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
#pragma GCC unroll 1
        for (int unit = 0; unit < 2; ++unit) TimesUnit<T>(w, h, unit, x, sums);
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, Tokens x, Float (&sums)[T]) {
        const Int table = Simd::Table(quant::kMxfp4Values.data());
        TimesHalf<T, false>(w, h, unit, table, x, sums);
        TimesHalf<T, true>(w, h, unit, table, x, sums);
    }
};

// Block headers of W4 and W8: a float scale with the zero point in its low 8 bits.
struct Head {
    Float scale;
    Int zero;
};
WEFT_INLINE Head LoadHead(const std::byte* p, int h) {
    const Int head = LoadBytes(p, h);
    return {Simd::AsFloat(Simd::And(head, Simd::Set32(~255))), Simd::And(head, Simd::Set32(255))};
}

// -zero * (sum of the int8 activations in x).
WEFT_INLINE Int TimesZeroPoint(Int zero, const ActivationBlock& x) {
    return Simd::Mul32(zero, Simd::Set32(x.from_8 / 8));
}

struct BlockW4 {
    static constexpr DType kType = DType::kW4;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        Int dots[T];
        DotNibbles<T>(w, h, x, dots);
        const Head head = LoadHead(w + 256, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t];
            const Int from = TimesZeroPoint(head.zero, own);
            const Int all = Simd::Add32(Simd::Whole(dots[t]), from);
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
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        const Head head = LoadHead(w + 512, h);
        const Int zero = Simd::Sub32(head.zero, Simd::Set32(128));
        Int dots[T];
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) dots[t] = TimesZeroPoint(zero, x[t]);
        Arrange<T>(dots);
        const auto weights = [&](int i) {
            return Simd::Xor(LoadBytes(w + 64 * i, h), Simd::Set8(-128));
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
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        Int dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) { return LoadBytes(w + 64 * i, h); };
        Dot<T, 8, true>(weights, x, 0, dots);
        Settle<T>(dots);
        AddAllScaled<T>(LoadHalves(w + 512, h), x, dots, sums);
    }
};

// Q4_K, or Q5_K with kFive. In Q5_K, the fifth bits precede the quants; bit j of each byte of dword
// i belongs to sub-block j.
template <bool kFive>
struct BlockOfScalesAndMinima {
    static constexpr DType kType = kFive ? DType::kQ5_K : DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    static constexpr int64_t kQuants = kFive ? 832 : 320;
    WEFT_INLINE Float LoadU8(const std::byte* p, int h) { return Simd::FromInt(WideU8(p, h)); }
    // The weights of dword i of sub-block j.
    template <bool kHigh>
    WEFT_INLINE Int Weights(const std::byte* w, int h, int j, int i) {
        const Int bytes = LoadBytes(w + kQuants + j / 2 * 512 + 64 * i, h);
        const Int weights = kHigh ? HighNibbles(bytes) : LowNibbles(bytes);
        if constexpr (!kFive) return weights;
        const Int bit = Simd::Set8(1 << j);
        const Int own = Simd::And(LoadBytes(w + 320 + 64 * i, h), bit);
        return Simd::Or(weights, Simd::And(Simd::Equal8(own, bit), Simd::Set8(16)));
    }
    // Dot products of dwords [first, first + 4), in 16 bits.
    template <int T, bool kHigh>
    WEFT_INLINE void DotFour(const std::byte* w, int h, int j, int first, Tokens x,
                             Int (&short_dots)[T]) {
        const auto weights = [&](int i) { return Weights<kHigh>(w, h, j, first + i); };
        Dot<T, 4>(weights, x + j, 4 * first, short_dots);
    }
    // Multiplies sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int h, int j, Tokens x, Float (&sums)[T]) {
        constexpr bool kTwo = kFive && !Simd::kMatrices;  // with kMatrices, sums have 32 bits
        Int dots[T], more[T];
        Zero<T>(dots), Zero<T>(more);
        DotFour<T, kHigh>(w, h, j, 0, x, dots);
        DotFour<T, kHigh>(w, h, j, 4, x, kTwo ? more : dots);
        Settle<T>(dots);
        const Float minus_dmin = Simd::Sub(Simd::Zero(), LoadHalves(w + 32, h));
        const Float scale = Simd::Mul(LoadHalves(w, h), LoadU8(w + 64 + 16 * j, h));
        const Float min = Simd::Mul(minus_dmin, LoadU8(w + 192 + 16 * j, h));
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + j)[t];
            Int all = Simd::Whole(dots[t]);
            if constexpr (kTwo) all = Simd::Add32(all, Simd::Whole(more[t]));
            sums[t] = AddMin(min, own, AddScaled(scale, own, all, sums[t]));
        }
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T],
                           Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int j = 0; j < 8; j += 2) {
            fetch(j / 2, 4);
            TimesSub<T, false>(w, h, j, x, sums);
            TimesSub<T, true>(w, h, j + 1, x, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int j, Tokens x, Float (&sums)[T]) {
        if (j % 2 == 0) return TimesSub<T, false>(w, h, j, x, sums);
        TimesSub<T, true>(w, h, j, x, sums);
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
    WEFT_INLINE Int Weights(const std::byte* quants, int h, int i) {
        const Int nibbles = LoadBytes(quants + i * 192 + kGroup % 2 * 64, h);
        const Int pairs = LoadBytes(quants + i * 192 + 128, h);
        const Int low = kGroup < 2 ? LowNibbles(nibbles) : HighNibbles(nibbles);
        const Int high = kGroup == 0   ? Simd::Left8(pairs, 4)
                         : kGroup == 1 ? Simd::Left8(pairs, 2)
                         : kGroup == 2 ? pairs
                                       : Simd::Right8(pairs, 2);
        return Simd::Or(low, Simd::And(high, Simd::Set8(48)));
    }
    WEFT_INLINE Float Scale(const std::byte* w, int h, int i) {
        return Simd::Mul(LoadHalves(w, h), Simd::FromInt(WideI8(w + 32 + 16 * i, h)));
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int step, Tokens x, Float (&sums)[T]) {
        const int s = step % 2;
        const std::byte* quants = w + 288 + step * 4 * 192;
        constexpr int kSums = Simd::kMatrices ? 1 : 2;  // with kMatrices, sums have 32 bits
        Int dots[kSums][T];
#pragma GCC unroll 2
        for (int i = 0; i < kSums; ++i) {
            constexpr int kCount = 4 / kSums;
            const auto weights = [&](int n) { return Weights<kGroup>(quants, h, kCount * i + n); };
            Zero<T>(dots[i]);
            Dot<T, kCount>(weights, x + kGroup, 16 * s + 4 * kCount * i, dots[i]);
        }
        Settle<T>(dots[0]);
        const Float scale = Scale(w, h, step / 2 * 8 + 2 * kGroup + s);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + kGroup)[t];
            Int all = Simd::Whole(dots[0][t]);
            if constexpr (kSums == 2) all = Simd::Add32(all, Simd::Whole(dots[1][t]));
            all = Simd::Add32(all, Simd::Set32(own.from_32[s]));
            sums[t] = AddScaled(scale, own, all, sums[t]);
        }
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T],
                           Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int step = 0; step < 4; ++step) {
            fetch(step, 4);
            const Tokens x_half = x + step / 2 * 4;
            TimesGroup<T, 0>(w, h, step, x_half, sums);
            TimesGroup<T, 1>(w, h, step, x_half, sums);
            TimesGroup<T, 2>(w, h, step, x_half, sums);
            TimesGroup<T, 3>(w, h, step, x_half, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, Tokens x, Float (&sums)[T]) {
        const int group = unit % 4;
        x = x + unit / 4 * 4;
// (With sanitizers, GCC removes the loop before it reads the pragma, and warns.)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#pragma GCC unroll 1
#endif
        for (int step = unit / 4 * 2; step < unit / 4 * 2 + 2; ++step) {
            if (group == 0) TimesGroup<T, 0>(w, h, step, x, sums);
            if (group == 1) TimesGroup<T, 1>(w, h, step, x, sums);
            if (group == 2) TimesGroup<T, 2>(w, h, step, x, sums);
            if (group == 3) TimesGroup<T, 3>(w, h, step, x, sums);
        }
    }
};

}  // namespace weft::kernels::WEFT_SET
