#include "coll/sum.h"

#include <algorithm>
#include <cstring>

namespace weft::coll {
namespace {

// Sums of more than two are kept in the first-level cache while the addends pass by.
constexpr size_t kBlock = 512;

[[gnu::always_inline]] inline void AddLoop(const float* a, const float* b, float* out,
                                           size_t count) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

#if defined(__x86_64__)
// Wider vectors add the same numbers: only the speed differs.
__attribute__((target("avx2"))) void AddWide(const float* a, const float* b, float* out,
                                             size_t count) {
    AddLoop(a, b, out, count);
}
#endif

void Add(const float* a, const float* b, float* out, size_t count) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return AddWide(a, b, out, count);
#endif
    AddLoop(a, b, out, count);
}

}  // namespace

void SumInOrder(std::span<const float* const> addends, float* out, size_t count) {
    if (addends.size() == 1) {
        if (addends[0] != out) std::memcpy(out, addends[0], count * sizeof(float));
        return;
    }
    if (addends.size() == 2) return Add(addends[0], addends[1], out, count);
    float sums[kBlock];
    for (size_t begin = 0; begin < count; begin += kBlock) {
        const size_t n = std::min(kBlock, count - begin);
        Add(addends[0] + begin, addends[1] + begin, sums, n);
        for (size_t k = 2; k + 1 < addends.size(); k++) Add(sums, addends[k] + begin, sums, n);
        Add(sums, addends.back() + begin, out + begin, n);
    }
}

}  // namespace weft::coll
