// Weights of all types, in the layout of src/backend/gpu/dispatch/weights.cc: a unit of UNIT
// columns of a row is decoded to QUADS vec4 of float32, with the bits of DequantizeRow
// (tensor/quant.h).
//
// FP8 or one of these is defined. Lines "//: NAME_@ ..." (shaders.h) name the lists.
//= PLAIN F32 F16 BF16
//= CODED Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S
//= CODED IQ3_XXS IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 W4 W8 NVFP4

#if defined(F32)
#define PLAIN 32
#elif defined(F16) || defined(BF16)
#define PLAIN 16
#elif defined(Q4_0)
#define LOW 4
#define ZERO 8
#elif defined(Q4_1)
#define LOW 4
#elif defined(Q5_0)
#define LOW 4
#define HIGH 1
#define ZERO 16
#elif defined(Q5_1)
#define LOW 4
#define HIGH 1
#elif defined(Q8_0)
#define LOW 8
#elif defined(Q2_K)
#define LOW 2
#define SUB 1
#elif defined(Q3_K)
#define LOW 2
#define HIGH 1
#define SUB 1
#define ZERO 4
#elif defined(Q4_K)
#define LOW 4
#define SUB 1
#elif defined(Q5_K)
#define LOW 4
#define HIGH 1
#define SUB 1
#elif defined(Q6_K)
#define LOW 4
#define HIGH 2
#define SUB 1
#define ZERO 32
#elif defined(IQ4_NL)
#define LOW 4
#define BOOK 1
#elif defined(IQ4_XS)
#define LOW 4
#define SUB 1
#define BOOK 1
#elif defined(TQ1_0) || defined(TQ2_0)
#define LOW 2
#define ZERO 1
#elif defined(IQ1_S) || defined(IQ1_M)
#define GRID 8
#define SUB 1
#define ZERO 9
#elif defined(IQ2_XXS)
#define GRID 8
#elif defined(IQ2_XS) || defined(IQ2_S)
#define GRID 8
#define SUB 1
#elif defined(IQ3_XXS)
#define GRID 4
#elif defined(IQ3_S)
#define GRID 4
#define SUB 1
#elif defined(MXFP4) || defined(NVFP4)
#define LOW 4
#define BOOK 1
#elif defined(W4)
#define LOW 4
#elif defined(W8) || defined(FP8)
#define LOW 8
#else
#error "no weight type"
#endif

#ifndef PLAIN
#define PLAIN 0
#endif
#ifndef LOW
#define LOW 0
#endif
#ifndef HIGH
#define HIGH 0
#endif
#ifndef SUB
#define SUB 0
#endif
#ifndef ZERO
#define ZERO 0
#endif
#ifndef BOOK
#define BOOK 0
#endif
// Values per codebook entry; the codebook is plane 3 (grids.glsl).
#ifndef GRID
#define GRID 0
#endif

// Columns that an invocation processes at a time: 16 bytes of codes, at most 32 columns.
#if PLAIN == 32
#define UNIT 4
#elif PLAIN == 16
#define UNIT 8
#elif LOW == 8
#define UNIT 16
#else
#define UNIT 32
#endif
#define QUADS (UNIT / 4)

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Words2 { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Words4 {
    uvec4 at[];
};

// Addresses of a row in each plane.
struct WeightRow { uint64_t plane[4]; };

#if HIGH > 0 && SUB == 1
#define SUB_PLANE 2
#define SCALE_PLANE 3
#elif HIGH > 0 || SUB == 1
#define SUB_PLANE 1
#define SCALE_PLANE 2
#else
#define SCALE_PLANE 1
#endif

#if BOOK == 1
#if defined(MXFP4) || defined(NVFP4)
const float kBook[16] = float[](0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
#else
const float kBook[16] = float[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89,
                                113);
#endif
#ifdef DOT
#define BOOK_ENTRY int
#else
#define BOOK_ENTRY float
#endif
shared BOOK_ENTRY the_book[16];
#ifdef DOT
// By byte of two codes: the low code's entry | the high code's entry << 8.
shared uint the_pairs[256];
#endif
#endif

// All invocations must call it at the start of main(), as number `lane` of `lanes`.
void PrepareType(uint lane, uint lanes) {
#if BOOK == 1
    for (uint i = lane; i < 16; i += lanes) the_book[i] = BOOK_ENTRY(kBook[i]);
    barrier();
#ifdef DOT
    for (uint i = lane; i < 256; i += lanes) {
        the_pairs[i] = uint(the_book[i & 15] & 255) | uint(the_book[i >> 4] & 255) << 8;
    }
    barrier();
#endif
#endif
}

#include "halves.glsl"
float HalfAt(uint64_t address, uint i) {
    return HalfOf(Words(address).at[i >> 1], i & 1);
}
uint ByteAt(uint64_t address, uint i) {
    return Words(address).at[i >> 2] >> 8 * (i & 3) & 255;
}
uint ShortAt(uint64_t address, uint i) {
    return Words(address).at[i >> 1] >> 16 * (i & 1) & 0xffff;
}
float SignedByte(uint bits, int at) { return float(bitfieldExtract(int(bits), at, 8)); }

#if GRID > 0
#include "grids.glsl"
#endif

// Scales and offsets of the unit's first and second 16 columns.
struct Scales { precise vec2 scale; precise vec2 offset; };

#if PLAIN == 0
#if GRID == 0
// The words that hold the scales of a unit. Loading these words early hides the latency of memory.
uvec2 ScaleWordsOf(WeightRow row, uint unit) {
    const uint64_t at = row.plane[SCALE_PLANE];
#if defined(Q4_0) || defined(Q5_0) || defined(IQ4_NL) || defined(W8)
    return uvec2(Words(at).at[unit >> 1], 0);
#elif defined(Q8_0) || defined(MXFP4) || defined(FP8)
    return uvec2(Words(at).at[unit >> 2], 0);
#elif defined(Q4_1) || defined(Q5_1) || defined(W4)
    return uvec2(Words(at).at[unit], 0);
#elif defined(TQ1_0) || defined(TQ2_0)
    return uvec2(Words(at).at[unit >> 4], 0);
#elif defined(NVFP4)
    return Words2(at).at[unit >> 1];
#elif defined(Q2_K) || defined(Q4_K) || defined(Q5_K)
    return uvec2(Words(at).at[unit >> 3], Words(row.plane[SUB_PLANE]).at[unit >> 1]);
#elif defined(Q3_K) || defined(Q6_K)
    return uvec2(Words(at).at[unit >> 4], Words(row.plane[SUB_PLANE]).at[unit >> 1]);
#elif defined(IQ4_XS)
    return uvec2(Words(at).at[unit >> 4], Words(row.plane[SUB_PLANE]).at[unit >> 2]);
#endif
}

Scales ScalesFrom(uvec2 words, uint unit) {
    Scales s;
    s.offset = vec2(0);
#if defined(Q4_0) || defined(Q5_0) || defined(IQ4_NL)
    s.scale = vec2(HalfOf(words.x, unit & 1));
#elif defined(Q8_0)
    s.scale = vec2(HalfOf(words.x, unit >> 1 & 1));
#elif defined(Q4_1) || defined(Q5_1)
    const vec2 both = HalvesOf(words.x);
    s.scale = both.xx;
    s.offset = both.yy;
#elif defined(TQ1_0) || defined(TQ2_0)
    s.scale = vec2(HalfOf(words.x, unit >> 3 & 1));
#elif defined(MXFP4)
    const uint e = words.x >> 8 * (unit & 3) & 255;
    s.scale = vec2(uintBitsToFloat(e < 2 ? 0x200000u << e : (e - 1) << 23));
#elif defined(NVFP4)
    const uint both = words.y >> 16 * (unit & 1);
    const uvec2 bits = (uvec2(both & 255, both >> 8 & 255) << 20) + (117u << 23);
    s.scale = uintBitsToFloat(words.x) * uintBitsToFloat(bits);
#elif defined(FP8)
    s.scale = vec2(uintBitsToFloat(words.x));
#elif defined(W4)
    s.scale = vec2(uintBitsToFloat(words.x & ~0xffu));
#elif defined(W8)
    s.scale = vec2(uintBitsToFloat(words.x & ~0xffu));
    const int rest = 128 - int(words.x & 0xffu);
    if (rest != 0) s.offset = float(rest) * s.scale;
#elif defined(Q2_K)
    const vec2 both = HalvesOf(words.x);
    const uint sub = words.y >> 16 * (unit & 1) & 0xffff;
    s.scale = both.x * vec2(sub & 15, sub >> 8 & 15);
    s.offset = -(both.y * vec2(sub >> 4 & 15, sub >> 12));
#elif defined(Q3_K) || defined(Q6_K)
    const uint sub = words.y >> 16 * (unit & 1) & 0xffff;
    s.scale = HalfOf(words.x, unit >> 3 & 1) * vec2(SignedByte(sub, 0), SignedByte(sub, 8));
#elif defined(Q4_K) || defined(Q5_K)
    const vec2 both = HalvesOf(words.x);
    const uint sub = words.y >> 16 * (unit & 1) & 0xffff;
    s.scale = vec2(both.x * float(sub & 255));
    s.offset = vec2(-(both.y * float(sub >> 8)));
#elif defined(IQ4_XS)
    const uint sub = words.y >> 8 * (unit & 3) & 255;
    s.scale = vec2(HalfOf(words.x, unit >> 3 & 1) * SignedByte(sub, 0));
#endif
    return s;
}

// The words that hold the codes of a unit.
struct PackedCodes {
#if LOW == 2
    uvec2 low;
#else
    uvec4 low;
#endif
#if HIGH == 1
    uint high;
#elif HIGH == 2
    uvec2 high;
#endif
};
PackedCodes PackedCodesOf(WeightRow row, uint unit) {
    PackedCodes words;
#if LOW == 2
    words.low = Words2(row.plane[0]).at[unit];
#else
    words.low = Words4(row.plane[0]).at[unit];
#endif
#if HIGH == 1
    words.high = Words(row.plane[1]).at[unit];
#elif HIGH == 2
    words.high = Words2(row.plane[1]).at[unit];
#endif
    return words;
}

// The codes of a unit, four per word.
void CodesFrom(PackedCodes words, out uint codes[QUADS]) {
    [[unroll]] for (int j = 0; j < QUADS; ++j) {
#if LOW == 4
        uint four = words.low[j >> 1] >> 4 * (j & 1) & 0x0f0f0f0fu;
#elif LOW == 2
        uint four = words.low[j >> 2] >> 2 * (j & 3) & 0x03030303u;
#else
        uint four = words.low[j];
#endif
#if HIGH == 1
        four |= (words.high >> j & 0x01010101u) << LOW;
#elif HIGH == 2
        four |= (words.high[j >> 2] >> 2 * (j & 3) & 0x03030303u) << LOW;
#endif
        codes[j] = four;
    }
}
void CodesOf(WeightRow row, uint unit, out uint codes[QUADS]) {
    CodesFrom(PackedCodesOf(row, unit), codes);
}
Scales ScalesOf(WeightRow row, uint unit) { return ScalesFrom(ScaleWordsOf(row, unit), unit); }
#else
Scales ScalesOf(WeightRow row, uint unit) {
    Scales s;
    s.offset = vec2(0);
    s.scale = GridScales(row, unit);
    return s;
}
#endif

// The value of a code is (code - zero) * scale + offset. words: ScaleWordsOf().
int ZeroFrom(uvec2 words) {
#if defined(W4)
    return int(words.x & 0xffu);
#elif defined(W8)
    return 128;
#else
    return ZERO;
#endif
}
int ZeroOf(WeightRow row, uint unit) {
#if defined(W4)
    return ZeroFrom(ScaleWordsOf(row, unit));
#else
    return ZeroFrom(uvec2(0));
#endif
}

#if defined(FP8)
// The value of an E4M3 code, computed without denormals, which a GPU may flush.
float Fp8Value(uint code) {
    const uint exponent = code >> 3 & 15, first = exponent == 0 ? 0 : 8;
    const float unit = uintBitsToFloat((exponent + (exponent == 0 ? 118 : 117)) << 23);
    const float size = float(first + (code & 7)) * unit;
    return (code & 0x80) != 0 ? -size : size;
}
#endif

#ifndef DOT
vec4 BytesOf(uint four) {
#if BOOK == 1
    return vec4(the_book[four & 255], the_book[four >> 8 & 255], the_book[four >> 16 & 255],
                the_book[four >> 24]);
#elif defined(FP8)
    return vec4(Fp8Value(four & 255), Fp8Value(four >> 8 & 255), Fp8Value(four >> 16 & 255),
                Fp8Value(four >> 24));
#elif defined(Q8_0) || GRID > 0
    return vec4(SignedByte(four, 0), SignedByte(four, 8), SignedByte(four, 16),
                SignedByte(four, 24));
#else
    return vec4(four & 255, four >> 8 & 255, four >> 16 & 255, four >> 24);
#endif
}
#endif
#endif

#ifndef DOT
// Columns [unit * UNIT, ...) of the row; zeros beyond the last column.
void Decode(WeightRow row, uint unit, out vec4 w[QUADS]) {
#if PLAIN == 32
    w[0] = uintBitsToFloat(Words4(row.plane[0]).at[unit]);
#elif defined(F16)
    const uvec4 bits = Words4(row.plane[0]).at[unit];
    w[0] = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
    w[1] = vec4(unpackHalf2x16(bits.z), unpackHalf2x16(bits.w));
#elif defined(BF16)
    const uvec4 bits = Words4(row.plane[0]).at[unit];
    const uvec4 low = bits << 16, high = bits & 0xffff0000u;
    w[0] = uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y));
    w[1] = uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w));
#else
    uint codes[QUADS];
    CodesOf(row, unit, codes);
    const Scales s = ScalesOf(row, unit);
    const float zero = float(ZeroOf(row, unit));
    [[unroll]] for (int j = 0; j < QUADS; ++j) {
        const int part = UNIT == 32 ? j >> 2 : 0;
        precise vec4 product = (BytesOf(codes[j]) - zero) * s.scale[part];
        precise vec4 value = product + s.offset[part];
        w[j] = value;
    }
#endif
}
#endif
