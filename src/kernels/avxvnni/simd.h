// AVX2 with dot products of bytes (AVX-VNNI): avx2/lanes.h, plus the instruction vpdpbusd, which
// adds four products of bytes to each 32-bit lane. The 16-bit sums of AVX2 never saturate, so both
// sets compute the same integers, and every result has the same bits as with AVX2. Included only in
// files that are compiled for this set.
#pragma once

#include "hw/cpu.h"
#include "kernels/avx2/lanes.h"

namespace weft::kernels::avxvnni {

struct Simd : Lanes {
    static constexpr CpuLevel kLevel = CpuLevel::kAvxVnni;
    static constexpr bool kPairSums = false;

    // Products of bytes. A Short is one 32-bit sum per lane. The instruction multiplies u8 by s8,
    // so DotSigned moves the sign of the weight to the activation, as AVX2 does.
    static Short StartShort(int32_t from, int left) {
        return Set32(left < 0 ? from >> -left : from << left);
    }
    static Short Dot(Int weights, Int x, Short sum) {
        return _mm256_dpbusd_avx_epi32(sum, weights, x);
    }
    static Int Whole(Short x) { return x; }
    static Int WholeScaled(Short x, Int scale) { return Mul32(x, scale); }
    static Int DotSigned(Int weights, Int x, Int sum) {
        return Dot(_mm256_abs_epi8(weights), _mm256_sign_epi8(x, weights), sum);
    }
    static int StoreI8(const float* x, float factor, int8_t* q) {
        const ByteSums sums = Lanes::StoreI8(x, factor, q);
        return sums.low + sums.high;
    }
};

}  // namespace weft::kernels::avxvnni
