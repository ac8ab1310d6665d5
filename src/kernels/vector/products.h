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

// The vectors of a strip that are multiplied together. With one token (two, if blocks are small),
// products wait for memory: each line of weights is used at once, and the stream of weights never
// pauses. With more tokens, the sums of one vector fill the registers, and the strip is read again
// from L1.
template <typename Block, int T>
inline constexpr int kVectors = T == 1 || (T == 2 && Block::kUnits == 1) ? kParts : 1;

template <int V, int T>
WEFT_INLINE void ZeroSums(Float (&sums)[V][T]) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sums[v][t] = Simd::Zero();
    }
}
template <int V, int T>
WEFT_INLINE void AddToWide(const Float (&sums)[V][T], Wide (&wide)[V][T]) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) wide[v][t] = Simd::AddWide(wide[v][t], Simd::Widen(sums[v][t]));
    }
}

// Whether a block is computed in steps that prefetch.
template <typename Block>
inline constexpr bool kStepFetches = requires(Float (&sums)[1]) {
    Block::template Times<1>(nullptr, 0, Tokens(), sums, NoFetch());
};

// Adds the products of vectors h to h + V - 1 of a block of weights and T tokens to `sums`, and
// moves `w` to the next block.
template <typename Block, int V, int T>
WEFT_INLINE void AddBlock(const std::byte*& w, int h, Tokens x, Float (&sums)[V][T]) {
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    constexpr int64_t kWeights = Block::kUnits * 32 * kStripRows;
    constexpr bool kFetches = kFetchesAhead<kWeights, kBytes, T>;
    if constexpr (!kStepFetches<Block>) {
        if (kFetches && h == 0) FetchAhead<kBytes>(w);
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
        if constexpr (kStepFetches<Block>) {
            const StepFetch<kBytes> fetch{kFetches && h + v == 0 ? w : nullptr};
            Block::template Times<T>(w, h + v, x, sums[v], fetch);
        } else {
            Block::template Times<T>(w, h + v, x, sums[v]);
        }
    }
    w += kBytes;
}

// The first block of the strip of row `row`.
template <typename Block>
WEFT_INLINE const std::byte* StripOf(const MatMulArgs& args, int64_t row) {
    return args.weight.data +
           row / kStripRows * weight_tiles::StripBytes(Block::kType, args.weight.cols);
}

// Multiplies one strip by the T tokens from `token` on, kVectors vectors of rows after another.
template <typename Block, int T>
void StripTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int V = kVectors<Block, T>;
    const int64_t units = args.weight.cols / 32;
    const Tokens x = TokensFrom(args, token);
    for (int h = 0; h < kParts; h += V) {
        const std::byte* w = StripOf<Block>(args, row);
        Float sums[V][T];
        ZeroSums(sums);
        for (int64_t unit = 0; unit < units; unit += Block::kUnits) {
            AddBlock<Block>(w, h, x + unit, sums);
        }
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                StoreSums(args, row + (h + v) * Simd::kLanes, token + t, sums[v][t]);
            }
        }
    }
}

template <int V, int T>
WEFT_INLINE void StoreAllWide(const MatMulArgs& args, int64_t row, int64_t token,
                              const Wide (&wide)[V][T]) {
    for (int v = 0; v < V; ++v) {
        for (int t = 0; t < T; ++t) StoreWide(args, row + v * Simd::kLanes, token + t, wide[v][t]);
    }
}

// As StripTile, with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Block, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int V = kVectors<Block, T>;
    const int64_t segment = std::max<int64_t>(args.segment_cols / 32, Block::kUnits);
    const int64_t units = args.weight.cols / 32;
    const Tokens x = TokensFrom(args, token);
    for (int h = 0; h < kParts; h += V) {
        const std::byte* w = StripOf<Block>(args, row);
        Wide wide[V][T];
        for (auto& own : wide) std::fill_n(own, T, Simd::WideZero());
        for (int64_t begin = 0; begin < units; begin += segment) {
            const int64_t end = std::min(units, begin + segment);
            Float sums[V][T];
            ZeroSums(sums);
            for (int64_t unit = begin; unit < end; unit += Block::kUnits) {
                AddBlock<Block>(w, h, x + unit, sums);
            }
            AddToWide(sums, wide);
        }
        StoreAllWide(args, row + h * Simd::kLanes, token, wide);
    }
}

// As SegmentedTile, for segments that are shorter than a block: adds the sums of each segment of
// one or more units to float64 sums. Skips units whose activations are zeros.
template <typename Block, int T>
void UnitsTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int V = kVectors<Block, T>;
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    constexpr int64_t kWeights = Block::kUnits * 32 * kStripRows;
    const int64_t segment = args.segment_cols / 32;
    const Tokens x = TokensFrom(args, token);
    const Range units = args.UnitsUsed();
    for (int h = 0; h < kParts; h += V) {
        const std::byte* w = StripOf<Block>(args, row);
        Wide wide[V][T];
        for (auto& own : wide) std::fill_n(own, T, Simd::WideZero());
        for (int64_t begin = units.begin; begin < units.end; begin += segment) {
            const int64_t block = begin / Block::kUnits, first = block * Block::kUnits;
            constexpr bool kFetches = kFetchesAhead<kWeights, kBytes, T>;
            const StepFetch<kBytes> fetch{kFetches && h == 0 ? w + block * kBytes : nullptr};
            Float sums[V][T];
            ZeroSums(sums);
            for (int64_t unit = begin; unit < begin + segment; ++unit) {
                fetch(static_cast<int>(unit - first), Block::kUnits);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) {
                    Block::template TimesUnit<T>(w + block * kBytes, h + v,
                                                 static_cast<int>(unit - first), x + first,
                                                 sums[v]);
                }
            }
            AddToWide(sums, wide);
        }
        StoreAllWide(args, row + h * Simd::kLanes, token, wide);
    }
}

// Whether one token is multiplied by all units of a block at once (TimesUnits), so that weights are
// read in the order of memory.
template <typename Block>
inline constexpr bool kUnitsInOneStream = requires {
    Block::template TimesUnits<2>(nullptr, Tokens(), std::declval<Float(&)[4][1]>());
};

// As UnitsTile, for one token and such a block, on instruction sets whose vectors have a lane for
// each row of a strip. A segment has kStep units.
template <typename Block, int kStep>
void UnitsOne(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = weight_tiles::BlockBytes(Block::kType);
    const Tokens x = TokensFrom(args, token);
    const std::byte* w = StripOf<Block>(args, row);
    const Range units = args.UnitsUsed();
    Wide wide = Simd::WideZero();
    for (int64_t block = units.begin / 8; block * 8 < units.end; ++block) {
        Float sums[8 / kStep][1];
#pragma GCC unroll 8
        for (auto& sum : sums) sum[0] = Simd::Zero();
        Block::template TimesUnits<kStep>(w + block * kBytes, x + 8 * block, sums);
#pragma GCC unroll 8
        for (auto& sum : sums) wide = Simd::AddWide(wide, Simd::Widen(sum[0]));
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
