// Vectors of floats as wide as the registers of this CPU level. Such a vector holds element i of
// kLanes groups of weights, so kLanes groups are searched at once. Only encode/level_*.cc include
// this header; each of them compiles these headers for its own level, in its own namespace.
//
// No operation here is fused or reordered, so that all levels give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifndef WEFT_ENCODE_LEVEL
#error "include it through encode/level_*.cc"
#endif

#define WEFT_INLINE [[gnu::always_inline]] static inline

namespace weft::encode::WEFT_ENCODE_LEVEL {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Lanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef int8_t Bytes __attribute__((vector_size(kLanes)));

WEFT_INLINE Lanes Splat(float value) {
    return Lanes{} + value;
}
WEFT_INLINE Lanes Load(const float* p) {
    Lanes value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
WEFT_INLINE void Store(float* p, Lanes value) {
    std::memcpy(p, &value, sizeof value);
}
// If a is NaN, returns b.
WEFT_INLINE Lanes Max(Lanes a, Lanes b) {
    return a > b ? a : b;
}
WEFT_INLINE Lanes Min(Lanes a, Lanes b) {
    return a < b ? a : b;
}
WEFT_INLINE Lanes Abs(Lanes a) {
    return Max(a, -a);
}
// Rounds to the nearest integer, halves to even; |a| < 2^22.
WEFT_INLINE Lanes Round(Lanes a) {
    return (a + 12582912.0f) - 12582912.0f;
}
WEFT_INLINE Lanes RoundClamped(Lanes a, float low, float high) {
    return Round(Min(Max(a, Splat(low)), Splat(high)));
}
// 1 / a; 0 if a is 0 or its inverse would be infinite.
WEFT_INLINE Lanes Inverse(Lanes a) {
    const Lanes safe = Abs(a) > 1e-37f ? a : Splat(1.0f);
    return Abs(a) > 1e-37f ? 1.0f / safe : Splat(0.0f);
}
// a / b; 0 if b is not positive.
WEFT_INLINE Lanes Ratio(Lanes a, Lanes b) {
    const Lanes safe = b > 0.0f ? b : Splat(1.0f);
    return b > 0.0f ? a / safe : Splat(0.0f);
}
// Rounds toward zero; |a| < 2^31.
WEFT_INLINE Lanes Truncate(Lanes a) {
    return __builtin_convertvector(__builtin_convertvector(a, Ints), Lanes);
}
WEFT_INLINE void StoreBytes(int8_t* p, Lanes integers) {
    const Bytes bytes = __builtin_convertvector(__builtin_convertvector(integers, Ints), Bytes);
    std::memcpy(p, &bytes, sizeof bytes);
}

// Loads kLanes int8 as floats. (Uses intrinsics, since compilers widen bytes to 32 bits one at a
// time.)
WEFT_INLINE Lanes LoadBytes(const int8_t* p) {
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
#if defined(__AVX512F__)
    return reinterpret_cast<Lanes>(
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes))));
#elif defined(__AVX2__)
    const auto low = reinterpret_cast<int64_t>(bytes);
    return reinterpret_cast<Lanes>(
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(low))));
#else
    return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Lanes);
#endif
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
