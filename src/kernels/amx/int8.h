// Quantized weights times int8 activations with tiles, for any Decoder (decode.h): the loops.
//
// The activations of a chunk of tokens stay in L2 while a pass processes the columns of four
// strips, 256 columns at a time. The columns are decoded once for all tokens of the chunk. The work
// is divided into steps of up to 16 tokens and two dot products of 32 (or 16) columns. In each
// step, tiles compute the dot products of one strip, while the dot products of the previous strip
// are scaled and added to the float sums.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/amx/decode.h"
#include "kernels/amx/tiles.h"
#include "kernels/vector/store.h"

namespace weft::kernels::amx {

template <typename Decoder>
class Int8Tiles {
  public:
    explicit Int8Tiles(const MatMulArgs& args)
        : args_(args),
          x_stride_(weight_tiles::QuantizedBlocks(args.weight.cols)),
          units_(args.weight.cols / 32),
          strip_bytes_(weight_tiles::StripBytes(Decoder::kType, args.weight.cols)),
          segment_(args.segment_cols == 0 ? units_ : args.segment_cols / 32),
          halves_apart_(kHalvesApart && !args.EndsInBlocks(32 * Decoder::kUnits)) {}

    // Computes y for the weight's rows [rows.begin, rows.end) and all tokens.
    void Run(Range rows) {
        for (int64_t begin = 0; begin < args_.rows; begin += kChunk) {
            BeginChunk(begin, std::min<int64_t>(kChunk, args_.rows - begin));
            for (int64_t row = rows.begin; row < rows.end; row += kStrips * kStripRows) {
                const int64_t left = (rows.end - row + kStripRows - 1) / kStripRows;
                Pass(row, std::min<int64_t>(kStrips, left));
            }
        }
    }

  private:
    static constexpr int kTile = 16;    // maximum number of tokens per tile
    static constexpr int kChunk = 128;  // tokens per chunk
    static constexpr int kStrips = 4;   // strips per pass
    static constexpr int kColumns = 8;  // units decoded at a time
    static constexpr int kScales = Decoder::kScales, kMins = Decoder::kMins;
    static constexpr int kPairUnits = 2 / kScales;  // units per pair of dot products
    static constexpr bool kHalvesApart = requires { Decoder::kHalvesApart; };

    // Divides a chunk into tiles with equal numbers of tokens. If the chunk is not a multiple of
    // this number, the last tile begins earlier and computes a few tokens twice.
    void BeginChunk(int64_t token, int64_t count) {
        chunk_ = token;
        count_ = count;
        tiles_of_chunk_ = (count + kTile - 1) / kTile;
        const int64_t least = (count + tiles_of_chunk_ - 1) / tiles_of_chunk_;
        tile_ = std::min((least + 3) / 4 * 4, count);
        // Tiles 0 and 1: dot products. 4 and 5: activations. 6 and 7: weights.
        TileConfig config;
        for (int i = 0; i < 2; ++i) {
            config.Set(i, tile_, 64);
            config.Set(4 + i, tile_, 32 / kScales);
            config.Set(6 + i, 8 / kScales, 64);
        }
        tiles_.Shape(config);
    }

    int64_t FirstOfTile(int64_t tile) const { return std::min(tile * tile_, count_ - tile_); }

    const ActivationBlock* Row(int64_t token) const {
        return reinterpret_cast<const ActivationBlock*>(args_.quantized) + token * x_stride_;
    }

    // Multiplies `strips` strips, from row `row` on, by the tokens of the chunk.
    void Pass(int64_t row, int64_t strips) {
        const std::byte* w = args_.weight.data + row / kStripRows * strip_bytes_;
        const auto slots = static_cast<size_t>(tiles_of_chunk_ * kTile);
        for (int64_t s = 0; s < strips; ++s) {
            std::memset(sums_[s], 0, slots * sizeof sums_[s][0]);
            if (args_.segment_cols != 0) std::memset(wide_[s], 0, slots * sizeof wide_[s][0]);
        }
        for (int64_t unit = 0; unit < units_; unit += kColumns) {
            const int64_t width = std::min<int64_t>(kColumns, units_ - unit);
            for (int64_t s = 0; s < strips; ++s) Decode(w + s * strip_bytes_, unit, width, s);
            for (int64_t i = 0; i < tiles_of_chunk_; ++i) {
                tile_ == kTile ? Tile<kTile>(i, unit, width, strips)
                               : Tile<1>(i, unit, width, strips);
            }
        }
        for (int64_t s = 0; s < strips; ++s) {
            for (int64_t t = 0; t < count_; ++t) Finish(row + s * kStripRows, s, t);
        }
    }

    void Decode(const std::byte* strip, int64_t unit, int64_t width, int64_t s) {
        constexpr int64_t kBytes = weight_tiles::BlockBytes(Decoder::kType);
        const std::byte* w = strip + unit / Decoder::kUnits * kBytes;
        for (int64_t u = 0; u < width; u += Decoder::kUnits, w += kBytes) {
            Decoder::Decode(w, decoded_[s] + u);
        }
    }

    // Two dot products that are added one after the other. Each is given by its unit i and its half
    // h. count: 1 if there is only the first one.
    struct Pair {
        int64_t i[2], h[2], count;
        Pair(int64_t number, int64_t width, bool halves_apart) {
            const int64_t d = 2 * number;
            if (halves_apart) {  // four units: first halves, then second halves
                for (int k = 0; k < 2; ++k) i[k] = d / 8 * 4 + d % 4 + k, h[k] = d / 4 % 2;
            } else {
                for (int k = 0; k < 2; ++k) i[k] = (d + k) / kScales, h[k] = (d + k) % kScales;
            }
            count = std::min<int64_t>(2, width * kScales - d);
        }
    };

    // Dot products of one strip that must still be added: the dot products of `pair`, for the tile
    // of tokens whose activations begin at x.
    struct Piece {
        Pair pair;
        int64_t s, slot, unit;
        const ActivationBlock* x;
    };

    // Multiplies all strips by the tokens of tile `tile`, for units [unit, unit + width).
    // kUnrolled: 16 for tiles of 16 tokens, else 1.
    template <int kUnrolled>
    void Tile(int64_t tile, int64_t unit, int64_t width, int64_t strips) {
        const ActivationBlock* x = Row(chunk_ + FirstOfTile(tile)) + unit;
        const int64_t pairs = (width * kScales + 1) / 2;
        const int64_t x_bytes = x_stride_ * static_cast<int64_t>(sizeof *x);
        Piece before = {{0, width, halves_apart_}, 0, tile * kTile, unit, x};
        int64_t step = 0;
        for (int64_t p = 0; p < pairs; ++p) {
            const Pair pair(p, width, halves_apart_);
            Load<4>(x[pair.i[0]].q + 32 / kScales * pair.h[0], x_bytes);
            if (pair.count == 2) Load<5>(x[pair.i[1]].q + 32 / kScales * pair.h[1], x_bytes);
            for (int64_t s = 0; s < strips; ++s, ++step) {
                Dots(s, pair, dots_[step % 2]);
                if (p + 1 < pairs) Fetch(x + kPairUnits * (p + 1), s);
                if (step > 0) AddPiece<kUnrolled>(before, dots_[(step + 1) % 2]);
                before.pair = pair;
                before.s = s;
            }
        }
        AddPiece<kUnrolled>(before, dots_[(step + 1) % 2]);
    }

    using PairDots = int32_t[2][kTile][kStripRows];

    [[gnu::always_inline]] void Dots(int64_t s, const Pair& pair, PairDots& dots) {
        Load<6>(decoded_[s][pair.i[0]].q[8 / kScales * pair.h[0]], 64);
        Zero<0>();
        TimesInt8<0, 4, 6>();
        if (pair.count == 2) {
            Load<7>(decoded_[s][pair.i[1]].q[8 / kScales * pair.h[1]], 64);
            Zero<1>();
            TimesInt8<1, 5, 7>();
            Store<0>(dots[0], 64);
            Store<1>(dots[1], 64);
        } else {
            Store<0>(dots[0], 64);
        }
    }

    // Prefetches one of the parts of a tile's activations, for the units at x, into L1. share: the
    // number of the part.
    [[gnu::always_inline]] void Fetch(const ActivationBlock* x, int64_t share) const {
#pragma GCC unroll 4
        for (int64_t k = 0; k < kTile / kStrips; ++k) {
            const ActivationBlock* line = x + (share * (kTile / kStrips) + k) * x_stride_;
            for (int u = 0; u < kPairUnits; ++u) _mm_prefetch(line + u, _MM_HINT_T0);
        }
    }

    template <int kUnrolled>
    [[gnu::always_inline]] void AddPiece(const Piece& piece, const PairDots& dots) {
        if constexpr (kUnrolled == kTile) {
            AddTokens<kTile>(piece, 0, dots);
        } else {
            int64_t t = 0;
            for (; tile_ - t >= 4; t += 4) AddTokens<4>(piece, t, dots);
            for (; t < tile_; ++t) AddTokens<1>(piece, t, dots);
        }
    }

    template <int T>
    [[gnu::always_inline]] void AddTokens(const Piece& piece, int64_t first, const PairDots& dots) {
        const ActivationBlock* x = piece.x + first * x_stride_;
        float(*all)[kStripRows] = sums_[piece.s] + piece.slot + first;
        // Whether the two dot products form a whole segment. Then no float sums are kept from one
        // piece to the next.
        const bool alone = kScales == 1 && segment_ == 2;
        __m512 sums[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sums[t] = alone ? _mm512_setzero_ps() : _mm512_load_ps(all[t]);
        for (int64_t k = 0; k < piece.pair.count; ++k) {
            const int64_t i = piece.pair.i[k], h = piece.pair.h[k];
            const Unit& unit = decoded_[piece.s][i];
            AddScaled<T>(dots[k] + first, unit.scale[h], x + i, sums);
            AddMins<T>(unit, x + i, sums);
            const int64_t done = piece.unit + i + 1;
            const bool whole = halves_apart_ ? done % 4 == 0 && h == 1 : h + 1 == kScales;
            const bool ends = args_.segment_cols != 0 && whole && !alone &&
                              (done % segment_ == 0 || done == units_);
            if (ends) Widen<T>(wide_[piece.s] + piece.slot + first, sums);
        }
        if (alone) return Widen<T>(wide_[piece.s] + piece.slot + first, sums);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) _mm512_store_ps(all[t], sums[t]);
    }

    template <int T>
    [[gnu::always_inline]] void AddScaled(const int32_t (*dots)[kStripRows], const float* scales,
                                          const ActivationBlock* x, __m512 (&sums)[T]) const {
        const __m512 scale = _mm512_load_ps(scales);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x[t * x_stride_].scale));
            const __m512 own = _mm512_cvtepi32_ps(_mm512_load_si512(dots[t]));
            sums[t] = _mm512_fmadd_ps(own, both, sums[t]);
        }
    }

    template <int T>
    [[gnu::always_inline]] void AddMins(const Unit& unit, const ActivationBlock* x,
                                        __m512 (&sums)[T]) const {
#pragma GCC unroll 2
        for (int s = 0; s < kMins; ++s) {
            const __m512 min = _mm512_load_ps(unit.min[s]);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const ActivationBlock& own = x[t * x_stride_];
                const float sum = kMins == 1 ? own.scaled_sum : own.scaled_half[s];
                sums[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(sum), sums[t]);
            }
        }
    }

    // Ends a segment: adds the float sums to the float64 sums.
    template <int T>
    [[gnu::always_inline]] void Widen(double (*all)[kStripRows], __m512 (&sums)[T]) const {
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sums[t]));
            const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sums[t], 1));
            _mm512_store_pd(all[t], _mm512_add_pd(_mm512_load_pd(all[t]), low));
            _mm512_store_pd(all[t] + 8, _mm512_add_pd(_mm512_load_pd(all[t] + 8), high));
            sums[t] = _mm512_setzero_ps();
        }
    }

    // Writes y for token t of the chunk.
    void Finish(int64_t row, int64_t s, int64_t t) {
        const int64_t tile = std::min(t / tile_, tiles_of_chunk_ - 1);
        const int64_t slot = tile * kTile + t - FirstOfTile(tile);
        if (args_.segment_cols == 0) {
            return avx512::StoreSums(args_, row, chunk_ + t, _mm512_load_ps(sums_[s][slot]));
        }
        avx512::StoreWide(args_, row, chunk_ + t, avx512::Simd::LoadWide(wide_[s][slot]));
    }

    const MatMulArgs& args_;
    const int64_t x_stride_, units_, strip_bytes_, segment_;
    const bool halves_apart_;  // whether the first halves of four units are added before the second
                               // halves
    TilesInUse tiles_;
    int64_t chunk_ = 0, count_ = 0, tile_ = 0, tiles_of_chunk_ = 0;
    Unit decoded_[kStrips][kColumns];
    alignas(4096) PairDots dots_[2];
    alignas(64) float sums_[kStrips][kChunk][kStripRows];
    alignas(64) double wide_[kStrips][kChunk][kStripRows];
};

}  // namespace weft::kernels::amx
