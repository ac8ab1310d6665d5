// The blocks of keys that a row of block-sparse attention chose (kernels/sparse.h), for attention
// that computes tiles of kTileKeys keys.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/attention_split.h"

namespace weft::kernels::WEFT_SET {

static_assert(kTileKeys == 64);  // one bit per key

// The blocks of keys that a row chose, tile by tile in ascending order.
class Choice {
  public:
    Choice() = default;
    Choice(const int32_t* chosen, int64_t top, int64_t block)
        : at_(chosen), end_(chosen + top), block_(block) {}

    static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    // The first tile with a chosen key at or after `position` (a multiple of kTileKeys).
    int64_t Next(int64_t position) {
        while (at_ != end_ && *at_ >= 0 && (*at_ + 1) * block_ <= position) ++at_;
        if (at_ == end_ || *at_ < 0) return kNone;
        return std::max(position, *at_ * block_ / kTileKeys * kTileKeys);
    }
    // The chosen keys of the tile that begins at position `tile`, one bit each. Call this after
    // Next(tile).
    uint64_t Keys(int64_t tile) const {
        uint64_t keys = 0;
        for (const int32_t* at = at_; at != end_ && *at >= 0; ++at) {
            const int64_t begin = std::max<int64_t>(*at * block_ - tile, 0);
            const int64_t end = std::min((*at + 1) * block_ - tile, kTileKeys);
            if (begin >= kTileKeys) break;
            if (begin < end) keys |= ~uint64_t{0} >> (kTileKeys - (end - begin)) << begin;
        }
        return keys;
    }

  private:
    const int32_t* at_ = nullptr;
    const int32_t* end_ = nullptr;
    int64_t block_ = 1;
};
// Sets the scores of keys that are not chosen to -infinity.
inline void HideScores(uint64_t chosen, float* scores) {
    for (uint64_t hidden = ~chosen; hidden != 0; hidden &= hidden - 1) {
        scores[std::countr_zero(hidden)] = -std::numeric_limits<float>::infinity();
    }
}

}  // namespace weft::kernels::WEFT_SET
