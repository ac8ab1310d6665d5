// Vectors of eight lanes for AVX2 (with FMA and F16C), with the interface described in
// vector/set.h. Each instruction set with these vectors derives its class Simd from this one, in
// its own namespace. Included only in files that are compiled for such a set.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/dense/element.h"

namespace weft::kernels::WEFT_SET {

// The sum of int8 over bytes 0 and 1 of each dword, and over bytes 2 and 3.
struct ByteSums {
    int low = 0, high = 0;
    ByteSums operator+(const ByteSums& other) const { return {low + other.low, high + other.high}; }
};

struct Lanes {
    using Float = __m256;
    struct Wide {
        __m256d low, high;
    };
    using Int = __m256i;
    using Short = __m256i;  // two 16-bit sums per lane
    using Half = dense::Half;
    static constexpr int kLanes = 8;
    static constexpr int kRegisters = 16;
    static constexpr bool kDots = false;
    static constexpr bool kMatrices = false;
    static constexpr bool kPairSums = true;

    // All ones in the first `count` lanes, 0 to kLanes.
    static __m256i First(int64_t count) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }

    static Float Zero() { return _mm256_setzero_ps(); }
    static Float Set(float value) { return _mm256_set1_ps(value); }
    static Float Load(const float* from) { return _mm256_loadu_ps(from); }
    static void Store(float* to, Float x) { _mm256_storeu_ps(to, x); }
    // LoadFirst and StoreFirst access only the first `count` < kLanes lanes. LoadFirst sets the
    // others to zero; StoreFirst does not write them.
    static Float LoadFirst(const float* from, int64_t count) {
        return _mm256_maskload_ps(from, First(count));
    }
    static void StoreFirst(float* to, Float x, int64_t count) {
        _mm256_maskstore_ps(to, First(count), x);
    }
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static Float Load(const Half* from) { return LoadF16(from); }
    static void Store(uint16_t* to, Float x) { StoreBF16(to, x); }
    static void Store(Half* to, Float x) { StoreF16(to, x); }
    template <typename Narrow>
    static Float LoadFirst(const Narrow* from, int64_t count) {
        Narrow first[kLanes] = {};
        std::copy_n(from, count, first);
        return Load(first);
    }
    template <typename Narrow>
    static void StoreFirst(Narrow* to, Float x, int64_t count) {
        Narrow all[kLanes];
        Store(all, x);
        std::copy_n(all, count, to);
    }
    // LoadUpTo and StoreUpTo are the same for any `count`, also kLanes and more.
    template <typename T>
    static Float LoadUpTo(const T* from, int64_t count) {
        return count >= kLanes ? Load(from) : LoadFirst(from, count);
    }
    static void StoreUpTo(float* to, Float x, int64_t count) {
        count >= kLanes ? Store(to, x) : StoreFirst(to, x, count);
    }
    // Stores two vectors. Instruction sets that can do so bypass the caches.
    template <typename T>
    static void StreamPair(T* to, Float x, Float y) {
        Store(to, x);
        Store(to + kLanes, y);
    }
    static void FinishStreams() {}
    // Takes the first `count` lanes (any number) from x and the others from y.
    static Float Select(int64_t count, Float x, Float y) {
        return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(First(count)));
    }

    static Float LoadF16(const void* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    static Float LoadBF16(const void* from) {
        const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(from));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
    static Float LoadI8(const void* from) {
        const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(from));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    // Loads the four bytes of each lane, which are E4M3 codes, as floats times 2^-8: bytes 0, 2, 1
    // and 3 go to out[0] to out[3]. Sign, exponent and mantissa are shifted to their positions in a
    // float. The different bias of the exponent gives the factor 2^-8, which the caller corrects by
    // its scale.
    static void LoadE4M3(const void* from, Float (&out)[4]) {
        const Int codes = LoadInt(from);
        out[0] = FromE4M3(Left32(codes, 24));
        out[1] = FromE4M3(Left32(codes, 8));
        out[2] = FromE4M3(Left32(codes, 16));
        out[3] = FromE4M3(codes);
    }
    static Float SpreadF16(const void* from) {  // one f16 in all lanes
        return Set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(from))));
    }
    static void StoreF16(void* to, Float x) {
        _mm_storeu_si128(static_cast<__m128i*>(to),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    // Rounds to nearest even. NaN stays NaN.
    static Float RoundBF16(Float x) {
        return _mm256_castsi256_ps(_mm256_and_si256(UpperBF16(x), _mm256_set1_epi32(-0x10000)));
    }
    static void StoreBF16(void* to, Float x) {
        const __m256i upper = _mm256_set1_epi64x(0x0f0e'0b0a'0706'0302);
        const __m256i halves = _mm256_shuffle_epi8(UpperBF16(x), upper);
        _mm_storeu_si128(static_cast<__m128i*>(to),
                         _mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0b1000)));
    }
    // The upper half of each lane is the rounded BF16.
    static Int UpperBF16(Float x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded =
            _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        return _mm256_blendv_epi8(rounded, quiet, nan);
    }

    // These return the first or the second BF16 of the pair in each lane, as a float.
    static Float FirstOfPairs(Float x) { return AsFloat(Left32(AsInt(x), 16)); }
    static Float SecondOfPairs(Float x) { return AsFloat(And(AsInt(x), Set32(-0x10000))); }

    static Float Add(Float x, Float y) { return _mm256_add_ps(x, y); }
    static Float Sub(Float x, Float y) { return _mm256_sub_ps(x, y); }
    static Float Mul(Float x, Float y) { return _mm256_mul_ps(x, y); }
    static Float Div(Float x, Float y) { return _mm256_div_ps(x, y); }
    static Float Fma(Float x, Float y, Float z) { return _mm256_fmadd_ps(x, y, z); }    // x*y + z
    static Float Fnma(Float x, Float y, Float z) { return _mm256_fnmadd_ps(x, y, z); }  // z - x*y
    static Float Max(Float x, Float y) { return _mm256_max_ps(x, y); }  // y if either is NaN
    static Float Min(Float x, Float y) { return _mm256_min_ps(x, y); }  // y if either is NaN
    // Per lane: x if a < b, else y. Takes y if a or b is NaN.
    static Float WhereLess(Float a, Float b, Float x, Float y) {
        return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
    }
    static Float Sqrt(Float x) { return _mm256_sqrt_ps(x); }
    static Float Abs(Float x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
    static Float Round(Float x) {
        return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    // x * 2^n for integer n in [-252, 254]. Multiplies by two factors, because 2^n may be out of
    // the range of a float.
    static Float Scale(Float x, Float n) {
        const __m256i whole = _mm256_cvtps_epi32(n);
        const __m256i half = _mm256_srai_epi32(whole, 1);
        return Mul(Mul(x, PowerOf2(half)), PowerOf2(_mm256_sub_epi32(whole, half)));
    }
    static float Sum(Float x) {
        const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
    }
    static float Largest(Float x) {
        const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
    }

    // Unzip and Zip convert between (a0, b0, a1, b1, ...), whose first kLanes elements are in x and
    // the others in y, and (a0, a1, ...), (b0, b1, ...).
    static void Unzip(Float x, Float y, Float* a, Float* b) {
        const Float low = _mm256_permute2f128_ps(x, y, 0x20);
        const Float high = _mm256_permute2f128_ps(x, y, 0x31);
        *a = _mm256_shuffle_ps(low, high, 0x88);
        *b = _mm256_shuffle_ps(low, high, 0xdd);
    }
    static void Zip(Float a, Float b, Float* x, Float* y) {
        const Float low = _mm256_unpacklo_ps(a, b);
        const Float high = _mm256_unpackhi_ps(a, b);
        *x = _mm256_permute2f128_ps(low, high, 0x20);
        *y = _mm256_permute2f128_ps(low, high, 0x31);
    }

    // Transposes kLanes vectors, rows[i][j] to rows[j][i]: first blocks of 2 x 2, then of 4 x 4,
    // then of 8 x 8.
    static void Transpose(Float* rows) {
        Float x[8];
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            x[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            x[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            rows[i] = _mm256_shuffle_ps(x[i], x[i + 2], 0x44);
            rows[i + 1] = _mm256_shuffle_ps(x[i], x[i + 2], 0xee);
            rows[i + 2] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0x44);
            rows[i + 3] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const Float low = rows[i], high = rows[4 + i];
            rows[i] = _mm256_permute2f128_ps(low, high, 0x20);
            rows[4 + i] = _mm256_permute2f128_ps(low, high, 0x31);
        }
    }

    static Wide Widen(Float x) {
        return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
    }
    static Float Narrow(Wide x) {
        return _mm256_set_m128(_mm256_cvtpd_ps(x.high), _mm256_cvtpd_ps(x.low));
    }
    static Wide WideZero() {
        return WideSet(0);
    }
    static Wide WideSet(double x) {
        return {_mm256_set1_pd(x), _mm256_set1_pd(x)};
    }
    static Wide AddWide(Wide x, Wide y) {
        return {_mm256_add_pd(x.low, y.low), _mm256_add_pd(x.high, y.high)};
    }
    static Wide FmaWide(Wide x, Wide y, Wide z) {  // x*y + z
        return {_mm256_fmadd_pd(x.low, y.low, z.low), _mm256_fmadd_pd(x.high, y.high, z.high)};
    }
    static Wide LoadWide(const double* from) {
        return {_mm256_loadu_pd(from), _mm256_loadu_pd(from + 4)};
    }
    static void StoreWide(double* to, Wide x) {
        _mm256_storeu_pd(to, x.low);
        _mm256_storeu_pd(to + 4, x.high);
    }

    // ---- Lanes of 32 bits, and their bytes -----------------------------------------------------

    static Int LoadInt(const void* from) {
        return _mm256_loadu_si256(static_cast<const __m256i*>(from));
    }
    static void StoreInt(void* to, Int x) {
        _mm256_storeu_si256(static_cast<__m256i*>(to), x);
    }
    static Int IntZero() {
        return _mm256_setzero_si256();
    }
    static Int Set32(int32_t x) {
        return _mm256_set1_epi32(x);
    }
    static Int Set8(int x) {
        return _mm256_set1_epi8(static_cast<char>(x));
    }
    // Load kLanes elements and widen them to 32 bits.
    static Int WidenU8(const void* from) {
        return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from)));
    }
    // `value` in the lanes whose bit is set in `bits`, else 0.
    static Int WhereBits(uint32_t bits, int32_t value) {
        const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
        return And(_mm256_cmpeq_epi32(And(all, own), own), Set32(value));
    }
    static Int WidenI8(const void* from) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from)));
    }
    static Int WidenU16(const void* from) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    static Float FromInt(Int x) {
        return _mm256_cvtepi32_ps(x);
    }
    static Float AsFloat(Int x) {
        return _mm256_castsi256_ps(x);
    }
    static Int AsInt(Float x) {
        return _mm256_castps_si256(x);
    }
    // Converts the float16 in the low half of each lane.
    static Float FromF16(Int bits) {
        const __m256i pairs = _mm256_packus_epi32(bits, bits);
        return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0xd8)));
    }
    static Int And(Int x, Int y) {
        return _mm256_and_si256(x, y);
    }
    static Int Or(Int x, Int y) {
        return _mm256_or_si256(x, y);
    }
    static Int Xor(Int x, Int y) {
        return _mm256_xor_si256(x, y);
    }
    static Int Add32(Int x, Int y) {
        return _mm256_add_epi32(x, y);
    }
    static Int Sub32(Int x, Int y) {
        return _mm256_sub_epi32(x, y);
    }
    static Int Mul32(Int x, Int y) {
        return _mm256_mullo_epi32(x, y);
    }
    static Int Max32(Int x, Int y) {
        return _mm256_max_epi32(x, y);
    }
    static Int Left32(Int x, int bits) {
        return _mm256_slli_epi32(x, bits);
    }
    static Int Right32(Int x, int bits) {
        return _mm256_srli_epi32(x, bits);
    }
    static Int Add8(Int x, Int y) {
        return _mm256_add_epi8(x, y);
    }
    static Int Sub8(Int x, Int y) {
        return _mm256_sub_epi8(x, y);
    }
    static Int Equal8(Int x, Int y) {
        return _mm256_cmpeq_epi8(x, y);
    }  // all ones where equal
    // Shift bytes by `bits`. The caller must mask the bits that come from the neighboring byte.
    static Int Left8(Int x, int bits) {
        return _mm256_slli_epi16(x, bits);
    }
    static Int Right8(Int x, int bits) {
        return _mm256_srli_epi16(x, bits);
    }
    // Table loads 16 bytes into each 128 bits. Choose selects bytes of the table, in each 128 bits,
    // by the bytes of `index` (0 to 15).
    static Int Table(const void* from) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    static Int Choose(Int table, Int index) {
        return _mm256_shuffle_epi8(table, index);
    }
    // For each lane, loads the entry table[index] into the lower 16 bits. The caller must ignore
    // the upper 16 bits.
    static Int Gather(const uint16_t* table, Int index) {
        const Int two =
            _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), Right32(index, 1), 4);
        return _mm256_srlv_epi32(two, Left32(And(index, Set32(1)), 4));
    }

    // Products of bytes, four per lane. Dot multiplies u8 weights by s8 activations and adds pairs
    // of products to 16-bit sums, which must not overflow (blocks.h). DotSigned multiplies s8
    // weights: the sign of the weight is moved to the activation, and sums of pairs are at most 2 *
    // 128 * 127.
    static Short ShortZero() {
        return _mm256_setzero_si256();
    }
    // The two sums in `from`, moved left by `left` bits, or right if `left` is negative.
    static Short StartShort(int32_t from, int left) {
        const Int all = Set32(from);
        return left < 0 ? _mm256_srai_epi16(all, -left) : _mm256_slli_epi16(all, left);
    }
    static Short Dot(Int weights, Int x, Short sum) {
        return InPlace(_mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, x)));
    }
    static Int Whole(Short x) {
        return _mm256_madd_epi16(x, _mm256_set1_epi16(1));
    }
    // The sum of each lane times `scale`, which must fit into 16 bits.
    static Int WholeScaled(Short x, Int scale) {
        return _mm256_madd_epi16(x, _mm256_blend_epi16(scale, Left32(scale, 16), 0xaa));
    }
    static Int DotSigned(Int weights, Int x, Int sum) {
        const Int size = _mm256_abs_epi8(weights), turned = _mm256_sign_epi8(x, weights);
        return InPlace(Add32(sum, Whole(_mm256_maddubs_epi16(size, turned))));
    }

    // Multiplies 16 floats by `factor`, stores them at q rounded to int8, and returns the sums of
    // these integers.
    static ByteSums StoreI8(const float* x, float factor, int8_t* q) {
        const Float all = Set(factor);
        const __m256i a = _mm256_cvtps_epi32(Mul(Load(x), all));
        const __m256i b = _mm256_cvtps_epi32(Mul(Load(x + 8), all));
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        const __m128i bytes =
            _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_store_si128(reinterpret_cast<__m128i*>(q), bytes);
        const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
        const __m128i two = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4e));
        const int four = _mm_cvtsi128_si32(_mm_add_epi16(two, _mm_shuffle_epi32(two, 0xb1)));
        return {static_cast<int16_t>(four), four >> 16};
    }

  private:
    // Keeps the compiler from adding the terms of a sum in another order, which needs more
    // registers than there are.
    static Int InPlace(Int sum) {
        asm("" : "+x"(sum));
        return sum;
    }
    // Each lane has an E4M3 code in its upper 8 bits.
    static Float FromE4M3(__m256i codes) {
        const __m256i bits =
            _mm256_and_si256(_mm256_srai_epi32(codes, 4), _mm256_set1_epi32(-0x78100000));
        return Mul(_mm256_castsi256_ps(bits), Set(0x1p112f));
    }
    static Float PowerOf2(__m256i n) {
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
    }
};

}  // namespace weft::kernels::WEFT_SET
