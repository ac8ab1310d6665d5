// Products of packed strips of one quantized type with quantized activations. Each of products_*.cc
// includes this header and instantiates some of the types, which keeps compile times short.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/vector/prefetch.h"
#include "kernels/vector/store.h"
#if defined(WEFT_OWN_PRODUCTS)
#include WEFT_SET_FILE(low_bits.h)
#else
#include "kernels/vector/low_bits.h"
#endif

namespace weft::kernels::WEFT_SET {

inline constexpr int kTile = Simd::kRegisters == 32 ? 12 : 4;  // tokens that share a block
inline constexpr int kUnitsTile = kTile < 8 ? kTile : 8;   // tokens that share a block if sums are
                                                           // often added to float64
inline constexpr int kTogether = Simd::kMatrices ? 2 : 1;  // tokens that are multiplied together
inline constexpr int64_t kTokenBytes = Simd::kRegisters * 12 * 1024;  // activations that stay in L2

template <int T>
WEFT_INLINE void ZeroSums(Floats (&sums)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = Strip::Zero();
}
template <int T>
WEFT_INLINE void AddToWide(const Floats (&sums)[T], Wides (&wide)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) wide[t] = Strip::AddWide(wide[t], Strip::Widen(sums[t]));
}

// Whether a block is computed in steps that prefetch.
template <typename Block>
inline constexpr bool kStepFetches = requires(Floats (&sums)[1]) {
    Block::template Times<1>(nullptr, Tokens(), sums, NoFetch());
};

// Adds the products of a block of weights and T tokens to `sums`, and moves `w` to the next block.
template <typename Block, int T>
WEFT_INLINE void AddBlock(const std::byte*& w, Tokens x, Floats (&sums)[T]) {
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    constexpr int64_t kWeights = Block::kUnits * 32 * kStripRows;
    constexpr bool kFetches = kFetchesAhead<kWeights, kBytes, T>;
    if constexpr (kStepFetches<Block>) {
        Block::template Times<T>(w, x, sums, StepFetch<kBytes>{kFetches ? w : nullptr});
    } else {
        if (kFetches) FetchAhead<kBytes>(w);
        Block::template Times<T>(w, x, sums);
    }
    w += kBytes;
}

// The first block of the strip of row `row`.
template <typename Block>
WEFT_INLINE const std::byte* StripOf(const MatMulArgs& args, int64_t row) {
    return args.weight.data +
           row / kStripRows * weight_tiles::StripBytes(Block::kType, args.weight.cols);
}

// Multiplies one strip by the T tokens from `token` on.
template <typename Block, int T>
void StripTile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t units = args.weight.cols / 32;
    const Tokens x = TokensFrom(args, token);
    const std::byte* w = StripOf<Block>(args, row);
    Floats sums[T];
    ZeroSums(sums);
    for (int64_t unit = 0; unit < units; unit += Block::kUnits) AddBlock<Block>(w, x + unit, sums);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) StoreSums(args, row, token + t, sums[t]);
}

template <int T>
WEFT_INLINE void StoreAllWide(const MatMulArgs& args, int64_t row, int64_t token,
                              const Wides (&wide)[T]) {
    for (int t = 0; t < T; ++t) StoreWide(args, row, token + t, wide[t]);
}

// As StripTile, with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Block, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t segment = std::max<int64_t>(args.segment_cols / 32, Block::kUnits);
    const int64_t units = args.weight.cols / 32;
    const Tokens x = TokensFrom(args, token);
    const std::byte* w = StripOf<Block>(args, row);
    Wides wide[T];
    std::fill_n(wide, T, Strip::WideZero());
    for (int64_t begin = 0; begin < units; begin += segment) {
        const int64_t end = std::min(units, begin + segment);
        Floats sums[T];
        ZeroSums(sums);
        for (int64_t unit = begin; unit < end; unit += Block::kUnits) {
            AddBlock<Block>(w, x + unit, sums);
        }
        AddToWide(sums, wide);
    }
    StoreAllWide(args, row, token, wide);
}

// As SegmentedTile, for segments that are shorter than a block: adds the sums of each segment of
// one or more units to float64 sums. Skips units whose activations are zeros.
template <typename Block, int T>
void UnitsTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    constexpr int64_t kWeights = Block::kUnits * 32 * kStripRows;
    const int64_t segment = args.segment_cols / 32;
    const Tokens x = TokensFrom(args, token);
    const Range units = args.UnitsUsed();
    const std::byte* w = StripOf<Block>(args, row);
    Wides wide[T];
    std::fill_n(wide, T, Strip::WideZero());
    for (int64_t begin = units.begin; begin < units.end; begin += segment) {
        const int64_t block = begin / Block::kUnits, first = block * Block::kUnits;
        constexpr bool kFetches = kFetchesAhead<kWeights, kBytes, T>;
        const StepFetch<kBytes> fetch{kFetches ? w + block * kBytes : nullptr};
        Floats sums[T];
        ZeroSums(sums);
        for (int64_t unit = begin; unit < begin + segment; ++unit) {
            fetch(static_cast<int>(unit - first), Block::kUnits);
            Block::template TimesUnit<T>(w + block * kBytes, static_cast<int>(unit - first),
                                         x + first, sums);
        }
        AddToWide(sums, wide);
    }
    StoreAllWide(args, row, token, wide);
}

// Whether one token is multiplied by all units of a block at once (TimesUnits), so that weights are
// read in the order of memory.
template <typename Block>
inline constexpr bool kUnitsInOneStream = requires {
    Block::template TimesUnits<2>(nullptr, Tokens(), std::declval<Floats(&)[4][1]>());
};

// As UnitsTile, for one token and such a block, on instruction sets whose vectors have a lane for
// each row of a strip. A segment has kStep units.
template <typename Block, int kStep>
void UnitsOne(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    const Tokens x = TokensFrom(args, token);
    const std::byte* w = StripOf<Block>(args, row);
    const Range units = args.UnitsUsed();
    Wides wide = Strip::WideZero();
    for (int64_t block = units.begin / 8; block * 8 < units.end; ++block) {
        Floats sums[8 / kStep][1];
#pragma GCC unroll 8
        for (auto& sum : sums) sum[0] = Strip::Zero();
        Block::template TimesUnits<kStep>(w + block * kBytes, x + 8 * block, sums);
#pragma GCC unroll 8
        for (auto& sum : sums) wide = Strip::AddWide(wide, Strip::Widen(sum[0]));
    }
    StoreWide(args, row, token, wide);
}

// Multiplies one strip by `tokens` (1 to kTile) tokens.
template <typename Block, int T = kTile>
void StripTokens(const MatMulArgs& args, int64_t row, int64_t token, int64_t tokens) {
    if constexpr (Block::kUnits > 1) {
        if (tokens == T && args.EndsInBlocks(32 * Block::kUnits)) {
            if constexpr (T == 1 && kUnitsInOneStream<Block>) {
                if (args.segment_cols == 64) return UnitsOne<Block, 2>(args, row, token);
                if (args.segment_cols == 128) return UnitsOne<Block, 4>(args, row, token);
            }
            return UnitsTile<Block, T>(args, row, token);
        }
    }
    if (tokens == T && args.segment_cols != 0) return SegmentedTile<Block, T>(args, row, token);
    if (tokens == T) return StripTile<Block, T>(args, row, token);
    if constexpr (T > 1) StripTokens<Block, T - 1>(args, row, token, tokens);
}

// Computes rows of y for all tokens.
template <typename Block>
void Strips(const MatMulArgs& args, Range rows) {
    const bool often = args.EndsInBlocks(32 * Block::kUnits) && args.segment_cols <= 64;
    const int64_t tile = often ? kUnitsTile : kTile;
    const int64_t row_bytes = weight_tiles::QuantizedActivationBytes(args.weight.cols);
    const int64_t fit = std::max<int64_t>(1, kTokenBytes / row_bytes / kTile) * kTile;
    for (int64_t begin = 0; begin < args.rows; begin += fit) {
        const int64_t end = std::min(args.rows, begin + fit);
        const int64_t tiles = (end - begin + tile - 1) / tile;
        for (int64_t row = rows.begin; row < rows.end; row += kStripRows) {
            for (int64_t i = 0; i < tiles; ++i) {  // tiles of nearly equal size
                const Range share =
                    Share(end - begin, kTogether, static_cast<int>(i), static_cast<int>(tiles));
                StripTokens<Block>(args, row, begin + share.begin, share.end - share.begin);
            }
        }
    }
}

}  // namespace weft::kernels::WEFT_SET
