// Decodes blocks of a KV cache (kernels/cache_blocks.h), kLanes elements at a time: of a row, or of
// 64 slots in a K cache, whose blocks are transposed (KvCache in args.h).
//
// An element is code * scale + offset, computed by one FMA. It has the bits of DequantizeRow,
// because the product of a code and an f16 scale is exact in float32.
#pragma once

#include <cstring>

#include "kernels/cache_blocks.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

template <DType dtype>
struct CacheBlock {
    using Int = Simd::Int;
    static constexpr int64_t kBytes = Info(dtype).block_bytes;
    static constexpr int64_t kHalves = CacheBlockHalves(dtype);
    static constexpr bool kNibbles = dtype != DType::kQ8_0, kFifths = dtype == DType::kQ5_1;
    // Bytes before the codes, or before their low 4 bits.
    static constexpr int64_t kCodes = 2 * kHalves + (kFifths ? 4 : 0);

    struct Scale {
        Float scale, offset;
    };
    WEFT_INLINE Scale MakeScale(Float scale, Float least) {
        if constexpr (kHalves == 2) return {scale, least};
        return {scale, kNibbles ? Simd::Mul(scale, Simd::Set(-8.0f)) : Simd::Zero()};
    }
    WEFT_INLINE Scale RowScale(const std::byte* block) {
        return MakeScale(Simd::SpreadF16(block), Simd::SpreadF16(block + 2 * (kHalves - 1)));
    }
    // Returns the scales of slots [lane, lane + kLanes).
    WEFT_INLINE Scale KeyScale(const std::byte* blocks, int64_t lane) {
        const std::byte* at = blocks + 2 * lane;
        return MakeScale(Simd::LoadF16(at), Simd::LoadF16(at + 2 * kSlotGroup * (kHalves - 1)));
    }

    // Elements [d, d + kLanes) of a block, or with kHigh, the 16 elements after them. d < 16.
    template <bool kHigh>
    WEFT_INLINE Float RowElements(const std::byte* block, int64_t d, const Scale& scale) {
        const std::byte* codes = block + kCodes + d;
        if constexpr (!kNibbles) {
            return Simd::Mul(Simd::LoadI8(codes + (kHigh ? 16 : 0)), scale.scale);
        } else if constexpr (!kFifths) {
            return Value(Nibbles<kHigh>(codes), scale);
        } else {
            uint32_t fifths;
            std::memcpy(&fifths, block + 2 * kHalves, sizeof fifths);
            const Int high = Simd::WhereBits(fifths >> (d + (kHigh ? 16 : 0)), 16);
            return Value(Simd::Or(Nibbles<kHigh>(codes), high), scale);
        }
    }
    // Element d (with kHigh: d + 16) of the blocks of slots [lane, lane + kLanes). d < 16.
    template <bool kHigh>
    WEFT_INLINE Float KeyElements(const std::byte* blocks, int64_t d, int64_t lane,
                                  const Scale& scale) {
        const std::byte* codes = blocks + (kCodes + d) * kSlotGroup + lane;
        if constexpr (!kNibbles) {
            return Simd::Mul(Simd::LoadI8(codes + (kHigh ? 16 * kSlotGroup : 0)), scale.scale);
        } else if constexpr (!kFifths) {
            return Value(Nibbles<kHigh>(codes), scale);
        } else {
            const int64_t bit = d + (kHigh ? 16 : 0);
            const Int fifths = Simd::WidenU8(blocks + (2 * kHalves + bit / 8) * kSlotGroup + lane);
            const Int high = Simd::Right32(Simd::Left32(fifths, 4), static_cast<int>(bit % 8));
            return Value(Simd::Or(Nibbles<kHigh>(codes), Simd::And(high, Simd::Set32(16))), scale);
        }
    }

  private:
    template <bool kHigh>
    WEFT_INLINE Int Nibbles(const std::byte* codes) {
        const Int bytes = Simd::WidenU8(codes);
        return kHigh ? Simd::Right32(bytes, 4) : Simd::And(bytes, Simd::Set32(15));
    }
    WEFT_INLINE Float Value(Int code, const Scale& scale) {
        return Simd::Fma(Simd::FromInt(code), scale.scale, scale.offset);
    }
};

// Calls on(CacheBlock<dtype>{}) for a block type.
template <typename On>
inline void WithCacheBlock(DType dtype, On on) {
    if (dtype == DType::kQ8_0) return on(CacheBlock<DType::kQ8_0>{});
    if (dtype == DType::kQ5_1) return on(CacheBlock<DType::kQ5_1>{});
    on(CacheBlock<DType::kQ4_0>{});
}

// Converts `blocks` blocks of a row.
template <typename Block>
inline void ConvertBlocks(const std::byte* from, int64_t blocks, float* to) {
    for (int64_t b = 0; b < blocks; ++b, from += Block::kBytes, to += kCacheBlock) {
        const auto scale = Block::RowScale(from);
        for (int64_t d = 0; d < 16; d += Simd::kLanes) {
            Simd::Store(to + d, Block::template RowElements<false>(from, d, scale));
            Simd::Store(to + d + 16, Block::template RowElements<true>(from, d, scale));
        }
    }
}

// Converts `blocks` blocks of 64 slots, to [32 * blocks][64].
template <typename Block>
inline void ConvertKeyBlocks(const std::byte* from, int64_t blocks, float* to) {
    for (int64_t b = 0; b < blocks; ++b) {
        for (int64_t lane = 0; lane < kSlotGroup; lane += Simd::kLanes) {
            const auto scale = Block::KeyScale(from, lane);
            float* at = to + lane;
            for (int64_t d = 0; d < 16; ++d) {
                Simd::Store(at + d * kSlotGroup,
                            Block::template KeyElements<false>(from, d, lane, scale));
                Simd::Store(at + (d + 16) * kSlotGroup,
                            Block::template KeyElements<true>(from, d, lane, scale));
            }
        }
        from += Block::kBytes * kSlotGroup;
        to += kCacheBlock * kSlotGroup;
    }
}

}  // namespace weft::kernels::WEFT_SET
