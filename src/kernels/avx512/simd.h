// Vectors of sixteen lanes for AVX-512, with the interface described in vector/set.h. AVX-512 has
// its own products of quantized weights and of bfloat16 (blocks.h, low_bits.h, grids.h, units.h).
// Included only in files that are compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hw/cpu.h"
#include "kernels/dense/element.h"
#include "tensor/dtype.h"

#define WEFT_OWN_PRODUCTS

namespace weft::kernels::avx512 {

// The lower and the upper byte of the bfloat16 for each E4M3 code without its sign.
struct alignas(64) E4M3Bytes {
    uint8_t low[128], high[128];
};
inline constexpr E4M3Bytes kE4M3Bytes = [] {
    E4M3Bytes bytes{};
    for (uint32_t code = 0; code < 128; ++code) {
        const auto bits = std::bit_cast<uint32_t>(Fp8Value(static_cast<uint8_t>(code)));
        bytes.low[code] = static_cast<uint8_t>(bits >> 16);
        bytes.high[code] = static_cast<uint8_t>(bits >> 24);
    }
    return bytes;
}();

struct Simd {
    using Float = __m512;
    struct Wide {
        __m512d low, high;
    };
    using Int = __m512i;
    using Half = dense::Half;
    static constexpr CpuLevel kLevel = CpuLevel::kAvx512;
    static constexpr int kLanes = 16;
    static constexpr int kRegisters = 32;
    static constexpr bool kDots = true;  // multiplies BF16
    static constexpr bool kMatrices = false;

    static __mmask16 First(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
    // `count` may be any number.
    static __mmask16 FirstUpTo(int64_t count) {
        return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
    }

    static Float Zero() { return _mm512_setzero_ps(); }
    static Float Set(float value) { return _mm512_set1_ps(value); }
    static Float Load(const float* from) { return _mm512_loadu_ps(from); }
    static void Store(float* to, Float x) { _mm512_storeu_ps(to, x); }
    // LoadFirst and StoreFirst access only the first `count` < kLanes lanes. LoadFirst sets the
    // others to zero; StoreFirst does not write them.
    static Float LoadFirst(const float* from, int64_t count) {
        return _mm512_maskz_loadu_ps(First(count), from);
    }
    static void StoreFirst(float* to, Float x, int64_t count) {
        _mm512_mask_storeu_ps(to, First(count), x);
    }
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static Float LoadFirst(const uint16_t* from, int64_t count) {
        const __m256i halves = _mm256_maskz_loadu_epi16(First(count), from);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static void Store(uint16_t* to, Float x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Halves(x));
    }
    static void StoreFirst(uint16_t* to, Float x, int64_t count) {
        _mm256_mask_storeu_epi16(to, First(count), Halves(x));
    }
    static Float Load(const Half* from) { return LoadF16(from); }
    static Float LoadFirst(const Half* from, int64_t count) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(count), from));
    }
    static void Store(Half* to, Float x) { StoreF16(to, x); }
    static void StoreFirst(Half* to, Float x, int64_t count) {
        _mm256_mask_storeu_epi16(to, First(count), Rounded(x));
    }
    // LoadUpTo and StoreUpTo are the same for any `count`, also kLanes and more.
    static Float LoadUpTo(const float* from, int64_t count) {
        return _mm512_maskz_loadu_ps(FirstUpTo(count), from);
    }
    static Float LoadUpTo(const uint16_t* from, int64_t count) {
        const __m256i halves = _mm256_maskz_loadu_epi16(FirstUpTo(count), from);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static Float LoadUpTo(const Half* from, int64_t count) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstUpTo(count), from));
    }
    static void StoreUpTo(float* to, Float x, int64_t count) {
        count >= kLanes ? Store(to, x) : _mm512_mask_storeu_ps(to, FirstUpTo(count), x);
    }
    // Stores two vectors to whole cache lines of 64 bytes, bypassing the caches.
    static void StreamPair(float* to, Float x, Float y) {
        _mm512_stream_ps(to, x);
        _mm512_stream_ps(to + kLanes, y);
    }
    static void StreamPair(uint16_t* to, Float x, Float y) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_castps_si512(Pairs(x, y)));
    }
    static void StreamPair(Half* to, Float x, Float y) {
        const __m512i low = _mm512_castsi256_si512(Rounded(x));
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_inserti64x4(low, Rounded(y), 1));
    }
    static void FinishStreams() { _mm_sfence(); }
    // Takes the first `count` lanes (0 to kLanes) from x and the others from y.
    static Float Select(int64_t count, Float x, Float y) {
        return _mm512_mask_blend_ps(First(count), y, x);
    }

    static Float LoadF16(const void* from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
    }
    static Float LoadBF16(const void* from) {
        const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(from));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static Float LoadI8(const void* from) {
        const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(from));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
    // Lanes of 32 bits.
    static Int Set32(int32_t x) { return _mm512_set1_epi32(x); }
    static Int WidenU8(const void* from) {  // of kLanes bytes
        return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    static Float FromInt(Int x) { return _mm512_cvtepi32_ps(x); }
    static Int And(Int x, Int y) { return _mm512_and_si512(x, y); }
    static Int Or(Int x, Int y) { return _mm512_or_si512(x, y); }
    static Int Left32(Int x, int bits) { return _mm512_slli_epi32(x, static_cast<unsigned>(bits)); }
    static Int Right32(Int x, int bits) {
        return _mm512_srli_epi32(x, static_cast<unsigned>(bits));
    }
    // `value` in the lanes whose bit is set in `bits`, else 0.
    static Int WhereBits(uint32_t bits, int32_t value) {
        return _mm512_maskz_set1_epi32(static_cast<__mmask16>(bits), value);
    }
    // Converts the four E4M3 codes in each lane to two pairs of BF16, one from the even bytes and
    // one from the odd bytes.
    struct E4M3Tables {
        __m512i low[2], high[2];
        E4M3Tables() {
            for (int half = 0; half < 2; ++half) {
                low[half] = _mm512_load_si512(kE4M3Bytes.low + 64 * half);
                high[half] = _mm512_load_si512(kE4M3Bytes.high + 64 * half);
            }
        }
        void Pairs(const void* from, Float* even, Float* odd) const {
            constexpr int kAOrBAndC = 0xf8;
            const __m512i codes = _mm512_loadu_si512(from);
            const __m512i lows = _mm512_permutex2var_epi8(low[0], codes, low[1]);
            const __m512i sizes = _mm512_permutex2var_epi8(high[0], codes, high[1]);
            const __m512i highs =
                _mm512_ternarylogic_epi32(sizes, codes, _mm512_set1_epi8(-128), kAOrBAndC);
            *even = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
                _mm512_slli_epi16(highs, 8), lows, _mm512_set1_epi16(0xff), kAOrBAndC));
            *odd = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
                _mm512_srli_epi16(lows, 8), highs, _mm512_set1_epi16(-0x100), kAOrBAndC));
        }
    };
    static Float SpreadF16(const void* from) {  // one f16 in all lanes
        return Set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(from))));
    }
    static void StoreF16(void* to, Float x) {
        _mm256_storeu_si256(static_cast<__m256i*>(to),
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    // Rounds to nearest even. NaN stays NaN.
    static void StoreBF16(void* to, Float x) {
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded =
            _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        const __m512i kept = _mm512_mask_blend_epi32(nan, rounded, quiet);
        _mm256_storeu_si256(static_cast<__m256i*>(to),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
    }

    // Make pairs of BF16, one pair per lane. PairRows pairs the elements of two rows of 16 (the
    // second may be zeros). Pairs makes pairs of neighbors among 32 floats, rounded to nearest even
    // (denormals become zeros).
    static Float PairRows(const void* first, const void* second) {
        return _mm512_castsi512_ps(
            _mm512_or_si512(WidenU16(first), _mm512_slli_epi32(WidenU16(second), 16)));
    }
    static Float PairRow(const void* first) { return _mm512_castsi512_ps(WidenU16(first)); }
    static Float Pairs(Float first, Float second) {
        return reinterpret_cast<Float>(_mm512_cvtne2ps_pbh(second, first));
    }
    static Float FirstOfPairs(Float pairs) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
    }
    static Float SecondOfPairs(Float pairs) {
        return _mm512_castsi512_ps(
            _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-0x10000)));
    }
    // Returns `sum` plus, in each lane, the two products of the lane's pairs.
    static Float Dot(Float x, Float y, Float sum) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
    }
    static __m512i WidenU16(const void* from) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
    }

    static Float Add(Float x, Float y) { return _mm512_add_ps(x, y); }
    static Float Sub(Float x, Float y) { return _mm512_sub_ps(x, y); }
    static Float Mul(Float x, Float y) { return _mm512_mul_ps(x, y); }
    static Float Div(Float x, Float y) { return _mm512_div_ps(x, y); }
    static Float Fma(Float x, Float y, Float z) { return _mm512_fmadd_ps(x, y, z); }    // x*y + z
    static Float Fnma(Float x, Float y, Float z) { return _mm512_fnmadd_ps(x, y, z); }  // z - x*y
    static Float Max(Float x, Float y) { return _mm512_max_ps(x, y); }  // y if either is NaN
    static Float Min(Float x, Float y) { return _mm512_min_ps(x, y); }  // y if either is NaN
    // Per lane: x if a < b, else y. Takes y if a or b is NaN.
    static Float WhereLess(Float a, Float b, Float x, Float y) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
    }
    static Float Sqrt(Float x) { return _mm512_sqrt_ps(x); }
    static Float Abs(Float x) { return _mm512_abs_ps(x); }
    static Float Round(Float x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
    // x * 2^n for integer n.
    static Float Scale(Float x, Float n) { return _mm512_scalef_ps(x, n); }
    static float Sum(Float x) { return _mm512_reduce_add_ps(x); }
    static float Largest(Float x) { return _mm512_reduce_max_ps(x); }

    // Unzip and Zip convert between (a0, b0, a1, b1, ...), whose first kLanes elements are in x and
    // the others in y, and (a0, a1, ...), (b0, b1, ...).
    static void Unzip(Float x, Float y, Float* a, Float* b) {
        const __m512i even =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        *a = _mm512_permutex2var_ps(x, even, y);
        *b = _mm512_permutex2var_ps(x, odd, y);
    }
    static void Zip(Float a, Float b, Float* x, Float* y) {
        const __m512i low =
            _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        *x = _mm512_permutex2var_ps(a, low, b);
        *y = _mm512_permutex2var_ps(a, high, b);
    }
    // Transposes kLanes vectors, rows[i][j] to rows[j][i]: first blocks of 2 x 2, then of 4 x 4,
    // then the 4 x 4 blocks themselves.
    static void Transpose(Float* rows) {
        Float x[16];
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            x[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
            x[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {
            rows[i] = Doubles<false>(x[i], x[i + 2]);
            rows[i + 1] = Doubles<true>(x[i], x[i + 2]);
            rows[i + 2] = Doubles<false>(x[i + 1], x[i + 3]);
            rows[i + 3] = Doubles<true>(x[i + 1], x[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {  // rows[4 g + i]: columns 4 q + i of rows 4 g..4 g + 3
            const Float a = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0x88);
            const Float b = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0x88);
            const Float c = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0xdd);
            const Float d = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0xdd);
            x[i] = _mm512_shuffle_f32x4(a, b, 0x88);
            x[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
            x[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88);
            x[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) rows[i] = x[i];
    }

    static Wide Widen(Float x) {
        return {_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
    }
    static Float Narrow(Wide x) {
        const Float low = _mm512_castps256_ps512(_mm512_cvtpd_ps(x.low));
        return _mm512_insertf32x8(low, _mm512_cvtpd_ps(x.high), 1);
    }
    static Wide WideZero() {
        return WideSet(0);
    }
    static Wide WideSet(double x) {
        return {_mm512_set1_pd(x), _mm512_set1_pd(x)};
    }
    static Wide AddWide(Wide x, Wide y) {
        return {_mm512_add_pd(x.low, y.low), _mm512_add_pd(x.high, y.high)};
    }
    static Wide FmaWide(Wide x, Wide y, Wide z) {  // x*y + z
        return {_mm512_fmadd_pd(x.low, y.low, z.low), _mm512_fmadd_pd(x.high, y.high, z.high)};
    }
    static Wide LoadWide(const double* from) {
        return {_mm512_loadu_pd(from), _mm512_loadu_pd(from + 8)};
    }
    static void StoreWide(double* to, Wide x) {
        _mm512_storeu_pd(to, x.low);
        _mm512_storeu_pd(to + 8, x.high);
    }

    // Multiplies 16 floats by `factor`, stores them at q rounded to int8, and returns the sum of
    // these integers.
    static int StoreI8(const float* x, float factor, int8_t* q) {
        const __m512i whole = _mm512_cvtps_epi32(Mul(Load(x), Set(factor)));
        const __m128i bytes = _mm512_cvtsepi32_epi8(whole);
        _mm_store_si128(reinterpret_cast<__m128i*>(q), bytes);
        const __m128i quads = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), bytes);
        const __m128i halves = _mm_hadd_epi32(quads, quads);
        return _mm_cvtsi128_si32(_mm_hadd_epi32(halves, halves));
    }

  private:
    static __m256i Halves(Float x) {  // denormals become zeros
        return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
    }
    static __m256i Rounded(Float x) {  // to float16
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    template <bool kHigh>
    static Float Doubles(Float x, Float y) {
        const __m512d a = _mm512_castps_pd(x), b = _mm512_castps_pd(y);
        return _mm512_castpd_ps(kHigh ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
    }
};

}  // namespace weft::kernels::avx512
