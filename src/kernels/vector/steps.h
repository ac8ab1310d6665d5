// Loops over the units of a block, for all types whose blocks have several units.
#pragma once

#include "kernels/vector/prefetch.h"
#include "kernels/vector/tokens.h"
#include "kernels/vector/twice.h"

namespace weft::kernels::WEFT_SET {

// A block that is multiplied unit by unit (Block::TimesUnit).
template <typename Block, int kCount>
struct UnitByUnit {
    static constexpr int64_t kUnits = kCount;
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int unit = 0; unit < kCount; ++unit) {
            fetch(unit, kCount);
            Block::template TimesUnit<T>(w, unit, x, sums);
        }
    }
};

// A block of two halves with four units each. Block::TimesGroup<kGroup>(w, half, x, sums)
// multiplies unit kGroup of a half; x: the activations of the half's first unit.
template <typename Block>
struct InHalves {
    static constexpr int64_t kUnits = 8;
    template <int kGroup = 0, int T>
    WEFT_INLINE void TimesHalf(const std::byte* w, int half, Tokens x, Floats (&sums)[T]) {
        Block::template TimesGroup<kGroup>(w, half, x, sums);
        if constexpr (kGroup < 3) TimesHalf<kGroup + 1>(w, half, x, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            fetch(half, 2);
            TimesHalf(w, half, x + 4 * half, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, Floats (&sums)[T]) {
        const int half = unit / 4, group = unit % 4;
        const Tokens from = x + 4 * half;
        if (group == 0) return Block::template TimesGroup<0>(w, half, from, sums);
        if (group == 1) return Block::template TimesGroup<1>(w, half, from, sums);
        if (group == 2) return Block::template TimesGroup<2>(w, half, from, sums);
        Block::template TimesGroup<3>(w, half, from, sums);
    }
};

}  // namespace weft::kernels::WEFT_SET
