// Sums of products of integers for a tile of T tokens: the innermost part of blocks.h and similar
// files.
//
// dots[t] has the sums of token t for a vector of rows. An instruction set that multiplies matrices
// (Strip::kMatrices) keeps the sums of two tokens as matrices between Zero (or Arrange) and Settle;
// in that form, sums may only be added to each other. A single token, and the last token of an odd
// number, are computed as on other instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/vector/tokens.h"
#include "kernels/vector/twice.h"

namespace weft::kernels::WEFT_SET {

using Shorts = Strip::Short;

// Copies four int8 of an activation block to every lane.
WEFT_INLINE Ints Quad(const ActivationBlock& x, int offset) {
    int32_t quad;
    std::memcpy(&quad, x.q + offset, sizeof quad);
    return Strip::Set32(quad);
}

template <int T>
WEFT_INLINE void Zero(Shorts (&dots)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) dots[t] = Strip::ShortZero();
}

// How many of the T tokens are multiplied as pairs.
template <int T>
inline constexpr int kPaired = Strip::kMatrices ? T / 2 * 2 : 0;

// Converts sums from vectors of rows to matrices; only for 32-bit sums.
template <int T, typename S = Strip>
WEFT_INLINE void Arrange(Ints (&dots)[T]) {
    if constexpr (S::kMatrices) {
#pragma GCC unroll 4
        for (int t = 0; t < kPaired<T>; t += 2) S::Arrange(dots[t], dots[t + 1]);
    }
}
// Converts sums back to vectors of rows.
template <int T, typename S = Strip>
WEFT_INLINE void Settle(Shorts (&dots)[T]) {
    if constexpr (S::kMatrices) {
#pragma GCC unroll 4
        for (int t = 0; t < kPaired<T>; t += 2) S::Settle(dots[t], dots[t + 1]);
    }
}

// Multiplies one quad by the tokens that are not paired. kSigned: weights are int8, and sums have
// 32 bits.
template <int T, bool kSigned>
WEFT_INLINE void DotQuad(Ints weights, Tokens x, int offset, Shorts (&dots)[T]) {
#pragma GCC unroll 4
    for (int t = kPaired<T>; t < T; ++t) {
        const Ints own = Quad(x[t], offset);
        dots[t] =
            kSigned ? Strip::DotSigned(weights, own, dots[t]) : Strip::Dot(weights, own, dots[t]);
    }
}

// Multiplies two consecutive quads by the tokens.
template <int T, bool kSigned, typename S = Strip>
WEFT_INLINE void DotTwo(Ints first, Ints second, Tokens x, int offset, Ints (&dots)[T]) {
    const auto rows = S::PairRows(first, second);
#pragma GCC unroll 4
    for (int t = 0; t < kPaired<T>; t += 2) {
        const auto tokens = S::PairTokens(x[t].q + offset, x[t + 1].q + offset);
        S::DotMatrices(rows, tokens, dots[t], dots[t + 1]);
    }
    DotQuad<T, kSigned>(first, x, offset, dots);
    DotQuad<T, kSigned>(second, x, offset + 4, dots);
}

// For each i below kCount: dots[t] += the products of weights(i), which are four columns of each
// row, and token t's four activations at offset + 4 i. Weights are u8 below 128, or int8 (kSigned).
template <int T, int kCount, bool kSigned = false, typename Weights>
WEFT_INLINE void Dot(const Weights& weights, Tokens x, int offset, Shorts (&dots)[T]) {
    if constexpr (kPaired<T> != 0) {
#pragma GCC unroll 8
        for (int i = 0; i < kCount; i += 2) {
            DotTwo<T, kSigned>(weights(i), weights(i + 1), x, offset + 4 * i, dots);
        }
    } else {
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) {
            DotQuad<T, kSigned>(weights(i), x, offset + 4 * i, dots);
        }
    }
}

// As Dot, for low(i) and for high(i), which are nibbles of the same bytes. The columns of high(i)
// are 16 columns after the columns of low(i).
template <int T, int kCount, bool kSigned = false, typename Low, typename High>
WEFT_INLINE void DotHalves(const Low& low, const High& high, Tokens x, int offset,
                           Shorts (&dots)[T]) {
    if constexpr (kPaired<T> != 0) {
#pragma GCC unroll 4
        for (int i = 0; i < kCount; i += 2) {
            DotTwo<T, kSigned>(low(i), low(i + 1), x, offset + 4 * i, dots);
            DotTwo<T, kSigned>(high(i), high(i + 1), x, offset + 16 + 4 * i, dots);
        }
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
            DotQuad<T, kSigned>(low(i), x, offset + 4 * i, dots);
            DotQuad<T, kSigned>(high(i), x, offset + 16 + 4 * i, dots);
        }
    }
}

}  // namespace weft::kernels::WEFT_SET
