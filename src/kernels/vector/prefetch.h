// Prefetches weights for the products of several tokens.
//
// The products prefetch lines of weights into L2 a few KB ahead. For one token, the hardware alone
// keeps too few lines in flight where memory is slow to answer, as on servers with many cores. For
// several tokens, reads alternate between the stream of weights and rows of activations that
// together exceed L1; the hardware then loses the stream, and each line of weights stalls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

inline constexpr int64_t kAheadBytes = 9216;

// Prefetches the kBytes bytes that are kAheadBytes after `weights`. The address may be past the
// last weight: a prefetch can't fault.
template <int64_t kBytes>
[[gnu::always_inline]] inline void FetchAhead(const std::byte* weights) {
    constexpr int64_t kLine = 64;
#pragma GCC unroll 64
    for (int64_t i = 0; i < kBytes; i += kLine) {
        __builtin_prefetch(weights + kAheadBytes + i, /*rw=*/0, /*locality=*/2);
    }
}

// Prefetches a block of kBytes bytes step by step: the block that is kAheadBytes after `weights`;
// none if that is null. A burst of 50 prefetches would fill the processor's buffers of outstanding
// misses, and the loads of the current block would wait for them (on Zen 3, a third of the time).
template <int64_t kBytes>
struct StepFetch {
    const std::byte* weights = nullptr;
    [[gnu::always_inline]] void operator()(int step, int steps) const {
        constexpr int64_t kLine = 64, kLines = (kBytes + kLine - 1) / kLine;
        if (weights == nullptr) return;
        const int64_t each = (kLines + steps - 1) / steps;
#pragma GCC unroll 32
        for (int64_t i = 0; i < each; ++i) {
            __builtin_prefetch(weights + kAheadBytes + (step * each + i) * kLine, /*rw=*/0,
                               /*locality=*/2);
        }
    }
};
struct NoFetch {
    [[gnu::always_inline]] void operator()(int, int) const {}
};

// Whether prefetching makes products faster if T tokens are multiplied by kWeights weights that
// have kBytes bytes. It does for one token (1.2 to 1.3 times on a server), and from 11 products per
// 4 bytes on (measured on AVX2 and AVX-512).
template <int64_t kWeights, int64_t kBytes, int T>
inline constexpr bool kFetchesAhead = T == 1 || 4 * T* kWeights >= 11 * kBytes;

}  // namespace weft::kernels::WEFT_SET
