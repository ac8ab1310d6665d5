// NEON with products of int8 matrices (FEAT_I8MM): neon/lanes.h, plus the instruction smmla, which
// multiplies two rows of eight weights by two tokens of eight activations. The sums of smmla equal
// the integer sums of dot products, so every result has the same bits as with NEON. Included only
// in files that are compiled for this set.
#pragma once

#include "hw/cpu.h"
#include "kernels/neon/lanes.h"

namespace weft::kernels::i8mm {

struct Simd : Lanes {
    static constexpr CpuLevel kLevel = CpuLevel::kI8mm;
    static constexpr bool kMatrices = true;

    // RowPairs has eight columns of eight rows, two rows per register. TokenPair has eight columns
    // of two tokens.
    struct RowPairs {
        int8x16_t rows[4];
    };
    using TokenPair = int8x16_t;

    // Makes RowPairs from two consecutive quads of columns.
    static RowPairs PairRows(Int first, Int second) {
        return {{Bytes8(vzip1q_s32(first.a, second.a)), Bytes8(vzip2q_s32(first.a, second.a)),
                 Bytes8(vzip1q_s32(first.b, second.b)), Bytes8(vzip2q_s32(first.b, second.b))}};
    }
    static TokenPair PairTokens(const int8_t* first, const int8_t* second) {
        return vcombine_s8(vld1_s8(first), vld1_s8(second));
    }
    // `first` and `second` together hold the sums of two tokens, as four matrices of two rows by
    // two tokens. Arrange converts to this form from two vectors, each with the sums of all rows
    // for one token. Settle converts back.
    static void DotMatrices(const RowPairs& weights, TokenPair x, Int& first, Int& second) {
        first.a = vmmlaq_s32(first.a, weights.rows[0], x);
        first.b = vmmlaq_s32(first.b, weights.rows[1], x);
        second.a = vmmlaq_s32(second.a, weights.rows[2], x);
        second.b = vmmlaq_s32(second.b, weights.rows[3], x);
    }
    static void Arrange(Int& first, Int& second) {
        const Int x = first, y = second;
        first = {vzip1q_s32(x.a, y.a), vzip2q_s32(x.a, y.a)};
        second = {vzip1q_s32(x.b, y.b), vzip2q_s32(x.b, y.b)};
    }
    static void Settle(Int& first, Int& second) {
        const Int x = first, y = second;
        first = {vuzp1q_s32(x.a, x.b), vuzp1q_s32(y.a, y.b)};
        second = {vuzp2q_s32(x.a, x.b), vuzp2q_s32(y.a, y.b)};
    }

  private:
    static int8x16_t Bytes8(int32x4_t x) { return vreinterpretq_s8_s32(x); }
};

}  // namespace weft::kernels::i8mm
