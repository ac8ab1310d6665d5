#include "tensor/half_rows.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace weft {
namespace {

uint16_t LoadHalf(const std::byte* from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return half;
}
void StoreHalf(std::byte* to, uint16_t half) {
    std::memcpy(to, &half, sizeof half);
}

#if defined(__x86_64__)
bool HasF16() {
    static const bool has = [] {
        // (clang 14's __builtin_cpu_supports does not accept "f16c".)
        unsigned a = 0, b = 0, c = 0, d = 0;
        return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
               (c & bit_F16C) != 0;
    }();
    return has;
}

// Converts groups of eight; returns the number of elements converted.
__attribute__((target("avx2,f16c"))) size_t WidenEights(const std::byte* from,
                                                        std::span<float> to) {
    size_t i = 0;
    for (; i + 8 <= to.size(); i += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
        _mm256_storeu_ps(to.data() + i, _mm256_cvtph_ps(halves));
    }
    return i;
}
__attribute__((target("avx2,f16c"))) size_t NarrowEights(std::span<const float> from,
                                                         std::byte* to) {
    size_t i = 0;
    for (; i + 8 <= from.size(); i += 8) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from.data() + i),
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i), halves);
    }
    return i;
}
#else
bool HasF16() {
    return false;
}
size_t WidenEights(const std::byte*, std::span<float>) {
    return 0;
}
size_t NarrowEights(std::span<const float>, std::byte*) {
    return 0;
}
#endif

}  // namespace

void WidenRow(DType dtype, const std::byte* from, std::span<float> to) {
    if (dtype == DType::kBF16) {
        for (size_t i = 0; i < to.size(); ++i) to[i] = BF16ToF32(LoadHalf(from + 2 * i));
        return;
    }
    WEFT_CHECK(dtype == DType::kF16);
    size_t i = HasF16() ? WidenEights(from, to) : 0;
    for (; i < to.size(); ++i) to[i] = F16ToF32(LoadHalf(from + 2 * i));
}

void NarrowRow(DType dtype, std::span<const float> from, std::byte* to) {
    if (dtype == DType::kBF16) {
        for (size_t i = 0; i < from.size(); ++i) StoreHalf(to + 2 * i, F32ToBF16(from[i]));
        return;
    }
    WEFT_CHECK(dtype == DType::kF16);
    size_t i = HasF16() ? NarrowEights(from, to) : 0;
    for (; i < from.size(); ++i) StoreHalf(to + 2 * i, F32ToF16(from[i]));
}

}  // namespace weft
