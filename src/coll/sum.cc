#include "coll/sum.h"

#include <algorithm>
#include <cstring>

namespace weft::coll {
namespace {

// Sums of more than two addends stay in the L1 cache while the addends stream.
constexpr size_t kBlock = 512;

template <typename T, typename Out>
[[gnu::always_inline]] inline void AddLoop(const T* a, const T* b, Out* out, size_t count) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) out[i] = static_cast<Out>(a[i] + b[i]);
}

[[gnu::always_inline]] inline void RoundLoop(const double* values, float* out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = static_cast<float>(values[i]);
}

#if defined(__x86_64__)
// Wider vectors give the same results, only faster.
template <typename T, typename Out>
__attribute__((target("avx2"))) void AddWide(const T* a, const T* b, Out* out, size_t count) {
    AddLoop(a, b, out, count);
}

__attribute__((target("avx2"))) void RoundWide(const double* values, float* out, size_t count) {
    RoundLoop(values, out, count);
}
#endif

template <typename T, typename Out>
void Add(const T* a, const T* b, Out* out, size_t count) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return AddWide(a, b, out, count);
#endif
    AddLoop(a, b, out, count);
}

// Out is T, or float to round doubles.
template <typename T, typename Out>
void SumAll(std::span<const std::byte* const> addends, Out* out, size_t count) {
    const auto addend = [&](size_t k) { return reinterpret_cast<const T*>(addends[k]); };
    if (addends.size() == 2) return Add(addend(0), addend(1), out, count);
    T sums[kBlock];
    const size_t last = addends.size() - 1;
    for (size_t begin = 0; begin < count; begin += kBlock) {
        const size_t n = std::min(kBlock, count - begin);
        Add(addend(0) + begin, addend(1) + begin, sums, n);
        for (size_t k = 2; k < last; k++) Add(sums, addend(k) + begin, sums, n);
        Add(sums, addend(last) + begin, out + begin, n);
    }
}

template <typename T>
void SumSame(std::span<const std::byte* const> addends, T* out, size_t count) {
    if (addends.size() > 1) return SumAll<T>(addends, out, count);
    const T* only = reinterpret_cast<const T*>(addends[0]);
    if (only != out) std::memcpy(out, only, count * sizeof(T));
}

}  // namespace

void SumInOrder(std::span<const std::byte* const> addends, float* out, size_t count) {
    SumSame(addends, out, count);
}

void SumInOrder(std::span<const std::byte* const> addends, double* out, size_t count) {
    SumSame(addends, out, count);
}

void SumInOrderRounded(std::span<const std::byte* const> addends, float* out, size_t count) {
    if (addends.size() > 1) return SumAll<double>(addends, out, count);
    RoundToFloat(reinterpret_cast<const double*>(addends[0]), out, count);
}

void RoundToFloat(const double* values, float* out, size_t count) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return RoundWide(values, out, count);
#endif
    RoundLoop(values, out, count);
}

}  // namespace weft::coll
