// Vectors of eight lanes for NEON with dot products (Armv8.2), with the interface described in
// vector/set.h. A vector is two registers of four lanes, so 16 vectors fill the 32 registers, and
// every result has the same bits as with AVX2. Each instruction set for aarch64 derives its class
// Simd from this one, in its own namespace. Included only in files that are compiled for such a
// set.
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstdint>

#include "kernels/dense/element.h"

namespace weft::kernels::WEFT_SET {

struct Lanes {
    struct Float {
        float32x4_t a, b;
    };
    struct Wide {
        float64x2_t a, b, c, d;
    };
    struct Int {
        int32x4_t a, b;
    };
    using Short = Int;
    using Half = dense::Half;
    static constexpr int kLanes = 8;
    static constexpr int kRegisters = 16;
    static constexpr bool kPairSums = false;
    static constexpr bool kDots = false;

    static Float Zero() { return Set(0); }
    static Float Set(float value) { return {vdupq_n_f32(value), vdupq_n_f32(value)}; }
    static Float Load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static Float Load(const Half* from) { return LoadF16(from); }
    static void Store(float* to, Float x) {
        vst1q_f32(to, x.a);
        vst1q_f32(to + 4, x.b);
    }
    static void Store(uint16_t* to, Float x) { StoreBF16(to, x); }
    static void Store(Half* to, Float x) { StoreF16(to, x); }
    // LoadFirst and StoreFirst access only the first `count` < kLanes lanes. LoadFirst sets the
    // others to zero; StoreFirst does not write them.
    template <typename T>
    static Float LoadFirst(const T* from, int64_t count) {
        T first[kLanes] = {};
        std::copy_n(from, count, first);
        return Load(first);
    }
    template <typename T>
    static void StoreFirst(T* to, Float x, int64_t count) {
        T all[kLanes];
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
        constexpr int32x4_t kNumbers = {0, 1, 2, 3};
        const auto first = static_cast<int32_t>(std::clamp<int64_t>(count, 0, kLanes));
        return {vbslq_f32(vcltq_s32(kNumbers, vdupq_n_s32(first)), x.a, y.a),
                vbslq_f32(vcltq_s32(kNumbers, vdupq_n_s32(first - 4)), x.b, y.b)};
    }

    static Float LoadF16(const void* from) {
        const uint16x8_t bits = vld1q_u16(static_cast<const uint16_t*>(from));
        return {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(bits))),
                vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(bits)))};
    }
    static Float LoadBF16(const void* from) { return AsFloat(Left32(WidenU16(from), 16)); }
    static Float LoadI8(const void* from) { return FromInt(WidenI8(from)); }
    // Loads the four bytes of each lane, which are E4M3 codes, as floats times 2^-8: bytes 0, 2, 1
    // and 3 go to out[0] to out[3]. (With its exponent shifted by one bit, a code is a float16.)
    static void LoadE4M3(const void* from, Float (&out)[4]) {
        const int8x8x4_t bytes = vld4_s8(static_cast<const int8_t*>(from));
        const int8x8_t codes[4] = {bytes.val[0], bytes.val[2], bytes.val[1], bytes.val[3]};
        for (int i = 0; i < 4; ++i) {
            const int16x8_t bits =
                vandq_s16(vshlq_n_s16(vmovl_s8(codes[i]), 7), vdupq_n_s16(-0x4001));
            out[i] = {vcvt_f32_f16(vreinterpret_f16_s16(vget_low_s16(bits))),
                      vcvt_f32_f16(vreinterpret_f16_s16(vget_high_s16(bits)))};
        }
    }
    static Float SpreadF16(const void* from) {  // one f16 in all lanes
        const uint16x4_t bits = vld1_dup_u16(static_cast<const uint16_t*>(from));
        const float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(bits));
        return {x, x};
    }
    static void StoreF16(void* to, Float x) {
        const uint16x4_t low = vreinterpret_u16_f16(vcvt_f16_f32(x.a));
        const uint16x4_t high = vreinterpret_u16_f16(vcvt_f16_f32(x.b));
        vst1q_u16(static_cast<uint16_t*>(to), vcombine_u16(low, high));
    }
    // Rounds to nearest even. NaN stays NaN.
    static Float RoundBF16(Float x) {
        return {vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(ToBF16(x.a)), 16)),
                vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(ToBF16(x.b)), 16))};
    }
    static void StoreBF16(void* to, Float x) {
        vst1q_u16(static_cast<uint16_t*>(to), vcombine_u16(ToBF16(x.a), ToBF16(x.b)));
    }

    // These return the first or the second BF16 of the pair in each lane, as a float.
    static Float FirstOfPairs(Float x) { return AsFloat(Left32(AsInt(x), 16)); }
    static Float SecondOfPairs(Float x) { return AsFloat(And(AsInt(x), Set32(-0x10000))); }

    static Float Add(Float x, Float y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
    static Float Sub(Float x, Float y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
    static Float Mul(Float x, Float y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
    static Float Div(Float x, Float y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
    static Float Fma(Float x, Float y, Float z) {  // x*y + z
        return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
    }
    static Float Fnma(Float x, Float y, Float z) {  // z - x*y
        return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b)};
    }
    static Float Max(Float x, Float y) { return WhereLess(y, x, x, y); }  // y if either is NaN
    static Float Min(Float x, Float y) { return WhereLess(x, y, x, y); }  // y if either is NaN
    // Per lane: x if a < b, else y. Takes y if a or b is NaN.
    static Float WhereLess(Float a, Float b, Float x, Float y) {
        return {vbslq_f32(vcltq_f32(a.a, b.a), x.a, y.a), vbslq_f32(vcltq_f32(a.b, b.b), x.b, y.b)};
    }
    static Float Sqrt(Float x) { return {vsqrtq_f32(x.a), vsqrtq_f32(x.b)}; }
    static Float Abs(Float x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
    static Float Round(Float x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
    // x * 2^n for integer n in [-252, 254]. Multiplies by two factors, because 2^n may be out of
    // the range of a float.
    static Float Scale(Float x, Float n) {
        const Int whole = {vcvtnq_s32_f32(n.a), vcvtnq_s32_f32(n.b)};
        const Int half = {whole.a >> 1, whole.b >> 1};
        return Mul(Mul(x, PowerOf2(half)), PowerOf2(Sub32(whole, half)));
    }
    // Adds in the same order as AVX2.
    static float Sum(Float x) {
        const float32x4_t half = vaddq_f32(x.a, x.b);
        const float32x2_t pair = vadd_f32(vget_low_f32(half), vget_high_f32(half));
        return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
    }
    static float Largest(Float x) {
        const float32x4_t half = vbslq_f32(vcltq_f32(x.b, x.a), x.a, x.b);
        const float32x2_t low = vget_low_f32(half), high = vget_high_f32(half);
        const float32x2_t pair = vbsl_f32(vclt_f32(high, low), low, high);
        return std::max(vget_lane_f32(pair, 0), vget_lane_f32(pair, 1));
    }

    // Unzip and Zip convert between (a0, b0, a1, b1, ...), whose first kLanes elements are in x and
    // the others in y, and (a0, a1, ...), (b0, b1, ...).
    static void Unzip(Float x, Float y, Float* a, Float* b) {
        *a = {vuzp1q_f32(x.a, x.b), vuzp1q_f32(y.a, y.b)};
        *b = {vuzp2q_f32(x.a, x.b), vuzp2q_f32(y.a, y.b)};
    }
    static void Zip(Float a, Float b, Float* x, Float* y) {
        *x = {vzip1q_f32(a.a, b.a), vzip2q_f32(a.a, b.a)};
        *y = {vzip1q_f32(a.b, b.b), vzip2q_f32(a.b, b.b)};
    }
    // Transposes kLanes vectors, rows[i][j] to rows[j][i]: first within blocks of 4 x 4, then the 4
    // x 4 blocks themselves.
    static void Transpose(Float* rows) {
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            Square(rows[i].a, rows[i + 1].a, rows[i + 2].a, rows[i + 3].a);
            Square(rows[i].b, rows[i + 1].b, rows[i + 2].b, rows[i + 3].b);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) std::swap(rows[i].b, rows[4 + i].a);
    }

    static Wide Widen(Float x) {
        return {vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a),
                vcvt_f64_f32(vget_low_f32(x.b)), vcvt_high_f64_f32(x.b)};
    }
    static Float Narrow(Wide x) {
        return {vcvt_high_f32_f64(vcvt_f32_f64(x.a), x.b),
                vcvt_high_f32_f64(vcvt_f32_f64(x.c), x.d)};
    }
    static Wide WideZero() {
        return WideSet(0);
    }
    static Wide WideSet(double x) {
        const float64x2_t all = vdupq_n_f64(x);
        return {all, all, all, all};
    }
    static Wide AddWide(Wide x, Wide y) {
        return {vaddq_f64(x.a, y.a), vaddq_f64(x.b, y.b), vaddq_f64(x.c, y.c), vaddq_f64(x.d, y.d)};
    }
    static Wide FmaWide(Wide x, Wide y, Wide z) {  // x*y + z
        return {vfmaq_f64(z.a, x.a, y.a), vfmaq_f64(z.b, x.b, y.b), vfmaq_f64(z.c, x.c, y.c),
                vfmaq_f64(z.d, x.d, y.d)};
    }
    static Wide LoadWide(const double* from) {
        return {vld1q_f64(from), vld1q_f64(from + 2), vld1q_f64(from + 4), vld1q_f64(from + 6)};
    }
    static void StoreWide(double* to, Wide x) {
        vst1q_f64(to, x.a);
        vst1q_f64(to + 2, x.b);
        vst1q_f64(to + 4, x.c);
        vst1q_f64(to + 6, x.d);
    }

    // ---- Lanes of 32 bits, and their bytes -----------------------------------------------------

    static Int LoadInt(const void* from) {
        const auto* lanes = static_cast<const int32_t*>(from);
        return {vld1q_s32(lanes), vld1q_s32(lanes + 4)};
    }
    static void StoreInt(void* to, Int x) {
        vst1q_s32(static_cast<int32_t*>(to), x.a);
        vst1q_s32(static_cast<int32_t*>(to) + 4, x.b);
    }
    static Int IntZero() {
        return Set32(0);
    }
    static Int Set32(int32_t x) {
        return {vdupq_n_s32(x), vdupq_n_s32(x)};
    }
    static Int Set8(int x) {
        const int32x4_t all = vreinterpretq_s32_s8(vdupq_n_s8(static_cast<int8_t>(x)));
        return {all, all};
    }
    // Load kLanes elements and widen them to 32 bits.
    static Int WidenU8(const void* from) {
        const uint16x8_t wide = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(from)));
        return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(wide)))};
    }
    // `value` in the lanes whose bit is set in `bits`, else 0.
    static Int WhereBits(uint32_t bits, int32_t value) {
        constexpr uint32x4_t kLow = {1, 2, 4, 8}, kHigh = {16, 32, 64, 128};
        const uint32x4_t all = vdupq_n_u32(bits), kept = vdupq_n_u32(static_cast<uint32_t>(value));
        return {Signed(vandq_u32(vtstq_u32(all, kLow), kept)),
                Signed(vandq_u32(vtstq_u32(all, kHigh), kept))};
    }
    static Int WidenI8(const void* from) {
        const int16x8_t wide = vmovl_s8(vld1_s8(static_cast<const int8_t*>(from)));
        return {vmovl_s16(vget_low_s16(wide)), vmovl_s16(vget_high_s16(wide))};
    }
    static Int WidenU16(const void* from) {
        const uint16x8_t x = vld1q_u16(static_cast<const uint16_t*>(from));
        return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(x)))};
    }
    static Float FromInt(Int x) {
        return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)};
    }
    static Float AsFloat(Int x) {
        return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)};
    }
    static Int AsInt(Float x) {
        return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)};
    }
    // Converts the float16 in the low half of each lane.
    static Float FromF16(Int bits) {
        return {vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(bits.a))),
                vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(bits.b)))};
    }
    static Int And(Int x, Int y) {
        return {x.a & y.a, x.b & y.b};
    }
    static Int Or(Int x, Int y) {
        return {x.a | y.a, x.b | y.b};
    }
    static Int Xor(Int x, Int y) {
        return {x.a ^ y.a, x.b ^ y.b};
    }
    static Int Add32(Int x, Int y) {
        return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)};
    }
    static Int Sub32(Int x, Int y) {
        return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)};
    }
    static Int Mul32(Int x, Int y) {
        return {vmulq_s32(x.a, y.a), vmulq_s32(x.b, y.b)};
    }
    static Int Max32(Int x, Int y) {
        return {vmaxq_s32(x.a, y.a), vmaxq_s32(x.b, y.b)};
    }
    static Int Left32(Int x, int bits) {
        const int32x4_t by = vdupq_n_s32(bits);
        return {vshlq_s32(x.a, by), vshlq_s32(x.b, by)};
    }
    static Int Right32(Int x, int bits) {
        const int32x4_t by = vdupq_n_s32(-bits);
        return {Signed(vshlq_u32(vreinterpretq_u32_s32(x.a), by)),
                Signed(vshlq_u32(vreinterpretq_u32_s32(x.b), by))};
    }
    static Int Add8(Int x, Int y) {
        return {FromBytes(vaddq_u8(Bytes(x.a), Bytes(y.a))),
                FromBytes(vaddq_u8(Bytes(x.b), Bytes(y.b)))};
    }
    static Int Sub8(Int x, Int y) {
        return {FromBytes(vsubq_u8(Bytes(x.a), Bytes(y.a))),
                FromBytes(vsubq_u8(Bytes(x.b), Bytes(y.b)))};
    }
    static Int Equal8(Int x, Int y) {  // all ones where equal
        return {FromBytes(vceqq_u8(Bytes(x.a), Bytes(y.a))),
                FromBytes(vceqq_u8(Bytes(x.b), Bytes(y.b)))};
    }
    // Shifts bytes by `bits`.
    static Int Left8(Int x, int bits) {
        const int8x16_t by = vdupq_n_s8(static_cast<int8_t>(bits));
        return {FromBytes(vshlq_u8(Bytes(x.a), by)), FromBytes(vshlq_u8(Bytes(x.b), by))};
    }
    static Int Right8(Int x, int bits) {
        return Left8(x, -bits);
    }
    // Table loads 16 bytes into each 128 bits. Choose selects bytes of the table, in each 128 bits,
    // by the bytes of `index` (0 to 15).
    static Int Table(const void* from) {
        const int32x4_t all = FromBytes(vld1q_u8(static_cast<const uint8_t*>(from)));
        return {all, all};
    }
    static Int Choose(Int table, Int index) {
        return {FromBytes(vqtbl1q_u8(Bytes(table.a), Bytes(index.a))),
                FromBytes(vqtbl1q_u8(Bytes(table.b), Bytes(index.b)))};
    }
    // For each lane, loads the entry table[index].
    static Int Gather(const uint16_t* table, Int index) {
        int32_t lanes[kLanes];
        StoreInt(lanes, index);
        for (int32_t& lane : lanes) lane = table[lane];
        return LoadInt(lanes);
    }

    // Products of bytes, four per 32-bit lane. Weights are u8 below 128, or s8; the other factor is
    // s8.
    static Short ShortZero() {
        return IntZero();
    }
    static Short StartShort(int32_t from, int left) {
        return Set32(left < 0 ? from >> -left : from << left);
    }
    static Short Dot(Int weights, Int x, Short sum) {
        return DotSigned(weights, x, sum);
    }
    static Int Whole(Short x) {
        return x;
    }
    static Int WholeScaled(Short x, Int scale) {
        return Mul32(x, scale);
    }
    static Int DotSigned(Int weights, Int x, Int sum) {
        return {vdotq_s32(sum.a, vreinterpretq_s8_s32(weights.a), vreinterpretq_s8_s32(x.a)),
                vdotq_s32(sum.b, vreinterpretq_s8_s32(weights.b), vreinterpretq_s8_s32(x.b))};
    }

    // Multiplies 16 floats by `factor`, stores them at q rounded to int8, and returns the sum of
    // these integers.
    static int StoreI8(const float* x, float factor, int8_t* q) {
        int16x4_t words[4];
        for (int i = 0; i < 4; ++i) {
            words[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), factor)));
        }
        const int8x8_t low = vqmovn_s16(vcombine_s16(words[0], words[1]));
        const int8x16_t bytes = vcombine_s8(low, vqmovn_s16(vcombine_s16(words[2], words[3])));
        vst1q_s8(q, bytes);
        return vaddlvq_s8(bytes);
    }

  private:
    static uint8x16_t Bytes(int32x4_t x) {
        return vreinterpretq_u8_s32(x);
    }
    static int32x4_t FromBytes(uint8x16_t x) {
        return vreinterpretq_s32_u8(x);
    }
    static int32x4_t Signed(uint32x4_t x) {
        return vreinterpretq_s32_u32(x);
    }
    static Float PowerOf2(Int n) {
        return AsFloat(Left32(Add32(n, Set32(127)), 23));
    }
    static uint16x4_t ToBF16(float32x4_t x) {
        const uint32x4_t bits = vreinterpretq_u32_f32(x);
        const uint32x4_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
        return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, bits | 0x400000), 16);
    }
    static void Square(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
        const float64x2_t ab = Pairs(vtrn1q_f32(a, b)), ba = Pairs(vtrn2q_f32(a, b));
        const float64x2_t cd = Pairs(vtrn1q_f32(c, d)), dc = Pairs(vtrn2q_f32(c, d));
        a = vreinterpretq_f32_f64(vtrn1q_f64(ab, cd));
        b = vreinterpretq_f32_f64(vtrn1q_f64(ba, dc));
        c = vreinterpretq_f32_f64(vtrn2q_f64(ab, cd));
        d = vreinterpretq_f32_f64(vtrn2q_f64(ba, dc));
    }
    static float64x2_t Pairs(float32x4_t x) {
        return vreinterpretq_f64_f32(x);
    }
};

}  // namespace weft::kernels::WEFT_SET
