// Weights are fetched ahead of the products of several tokens.
//
// One token reads weights as fast as memory gives them, and the CPU's own prefetching keeps up with
// that. Several tokens alternate between a stream of weights and rows of activations that don't
// fit in L1 together; there the hardware loses the stream, and each line of weights is waited for.
// So the products ask for lines a few KB before they need them, into L2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

inline constexpr int64_t kAheadBytes = 9216;

// Asks for the kBytes bytes that lie kAheadBytes behind `weights`. Past the last weight that is
// memory of others or none: a fetch reads nothing and can't fault.
template <int64_t kBytes>
[[gnu::always_inline]] inline void FetchAhead(const std::byte* weights) {
    constexpr int64_t kLine = 64;
#pragma GCC unroll 64
    for (int64_t i = 0; i < kBytes; i += kLine) {
        __builtin_prefetch(weights + kAheadBytes + i, /*rw=*/0, /*locality=*/2);
    }
}

// Whether T tokens that share kWeights weights of kBytes bytes gain by it: where there are 11
// products or more for 4 bytes (measured: AVX2, AVX-512).
template <int64_t kWeights, int64_t kBytes, int T>
inline constexpr bool kFetchesAhead = T > 1 && 4 * T * kWeights >= 11 * kBytes;

}  // namespace weft::kernels::WEFT_SET
