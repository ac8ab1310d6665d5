// Quantized weights times int8 activations with tiles, for any Decoder (decode.h): the loops.
//
// The tokens of a chunk stay in L2 while a pass goes through the columns of four strips, 256 at a
// time: these are decoded once for all tokens of the chunk; then, for 16 tokens and two strips, the
// dots of each 32 columns are made by tiles and added, scaled, to the float sums.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/amx/decode.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/store.h"

namespace weft::kernels::amx {

template <typename Decoder>
class Int8Tiles {
  public:
    explicit Int8Tiles(const MatMulArgs& args)
        : args_(args),
          x_stride_(strips::PreparedBlocks(args.weight.cols)),
          units_(args.weight.cols / 32),
          strip_bytes_(strips::StripBytes(Decoder::kType, args.weight.cols)),
          segment_(args.segment_cols == 0
                       ? units_
                       : std::max<int64_t>(args.segment_cols / 32, Decoder::kUnits)),
          fast_(args.segment_cols == 0 || segment_ == 2 || segment_ % kGroup == 0) {}

    // y of the weight's rows [rows.begin, rows.end) for every token.
    void Run(Range rows) {
        Shape();
        for (int64_t begin = 0; begin < args_.rows; begin += kChunk) {
            const int64_t count = std::min<int64_t>(kChunk, args_.rows - begin);
            for (int64_t row = rows.begin; row < rows.end; row += kStrips * kStripRows) {
                const int64_t left = (rows.end - row + kStripRows - 1) / kStripRows;
                Pass(row, std::min<int64_t>(kStrips, left), begin, count);
            }
        }
    }

  private:
    static constexpr int kTile = 16;    // tokens of a tile
    static constexpr int kChunk = 256;  // tokens
    static constexpr int kStrips = 4;   // of a pass
    static constexpr int kColumns = 8;  // units that are decoded at a time
    static constexpr int kScales = Decoder::kScales, kMins = Decoder::kMins;
    static constexpr int kGroup = 4;  // units whose dots wait together
    static constexpr bool kHalvesApart = requires { Decoder::kHalvesApart; };

    // Tiles 0 and 1: dots of two strips. 2: activations of 16 tokens. 3: those of the last tokens,
    // 4 and 5 their dots. 6 and 7: weights.
    void Shape() {
        TileConfig config;
        const int64_t tail = args_.rows % kTile == 0 ? kTile : args_.rows % kTile;
        for (int i = 0; i < 2; ++i) {
            config.Set(i, kTile, 64), config.Set(4 + i, tail, 64);
            config.Set(6 + i, 8 / kScales, 64);
        }
        config.Set(2, kTile, 32 / kScales), config.Set(3, tail, 32 / kScales);
        tiles_.Shape(config);
    }

    const ActivationBlock* Row(int64_t token) const {
        return reinterpret_cast<const ActivationBlock*>(args_.prepared) + token * x_stride_;
    }

    // `strips` strips from `row` on times `count` tokens from `token` on.
    void Pass(int64_t row, int64_t strips, int64_t token, int64_t count) {
        const std::byte* w = args_.weight.data + row / kStripRows * strip_bytes_;
        for (int64_t s = 0; s < strips; ++s) {
            std::memset(sums_[s], 0, static_cast<size_t>(count) * sizeof sums_[s][0]);
            if (args_.segment_cols == 0) continue;
            std::memset(wide_[s], 0, static_cast<size_t>(count) * sizeof wide_[s][0]);
        }
        for (int64_t unit = 0; unit < units_; unit += kColumns) {
            const int64_t width = std::min<int64_t>(kColumns, units_ - unit);
            for (int64_t s = 0; s < strips; ++s) Decode(w + s * strip_bytes_, unit, width, s);
            for (int64_t s = 0; s < strips; s += 2) {
                const bool two = strips - s > 1;
                const int64_t tiles = two && width == kColumns && fast_ ? count / kTile : 0;
                if (tiles > 0) Tiles(s, token, tiles, unit);
                for (int64_t t = tiles * kTile; t < count; t += kTile) {
                    const int64_t tokens = std::min<int64_t>(kTile, count - t);
                    two ? Area<2>(s, token, t, tokens, unit, width)
                        : Area<1>(s, token, t, tokens, unit, width);
                }
            }
        }
        for (int64_t s = 0; s < strips; ++s) {
            for (int64_t t = 0; t < count; ++t) Finish(row + s * kStripRows, token + t, s, t);
        }
    }

    void Decode(const std::byte* strip, int64_t unit, int64_t width, int64_t s) {
        constexpr int64_t kBytes = strips::BlockBytes(Decoder::kType);
        const std::byte* w = strip + unit / Decoder::kUnits * kBytes;
        for (int64_t u = 0; u < width; u += Decoder::kUnits, w += kBytes) {
            decoder_.Decode(w, decoded_[s] + u);
        }
    }

    // S strips times the tokens [t, t + tokens) of the chunk that begins with token `chunk`.
    template <int S>
    void Area(int64_t s, int64_t chunk, int64_t t, int64_t tokens, int64_t unit, int64_t width) {
        for (int64_t g = 0; g < width; g += kGroup) {
            const ActivationBlock* x = Row(chunk + t) + unit + g;
            const int64_t end = std::min<int64_t>(kGroup, width - g);
            for (int64_t d = 0; d < end * kScales; ++d) {
                tokens == kTile ? Dots<S, 0, 2>(s, g, d, x, dots_[0])
                                : Dots<S, 4, 3>(s, g, d, x, dots_[0]);
            }
            for (int half = 0; half < S; ++half) {
                for (int64_t i = 0; i < end;) {
                    const int64_t in_segment = (unit + g + i) % segment_;
                    const int64_t stop = std::min(end, i + segment_ - in_segment);
                    AddTokens<kTile>({s + half, half, t, 0, g, i, stop}, x, tokens);
                    i = stop;
                    const bool whole = (unit + g + i) % segment_ == 0 || unit + g + i == units_;
                    if (args_.segment_cols != 0 && whole) Widen(s + half, t, tokens);
                }
            }
        }
    }

    // What tiles make of one group of units: dots of two strips.
    using GroupDots = int32_t[2][kGroup * kScales][kTile][kStripRows];

    // Dots number d of a group (unit by unit, half by half) that begins with unit g of those that
    // are decoded, for the tokens at x.
    template <int S, int kC, int kA>
    [[gnu::always_inline]] void Dots(int64_t s, int64_t g, int64_t d, const ActivationBlock* x,
                                     GroupDots& dots) {
        constexpr int kBytes = 32 / kScales;
        const int64_t i = d / kScales, h = d % kScales;
        Load<kA>(x[i].q + kBytes * h, x_stride_ * static_cast<int64_t>(sizeof *x));
        Load<6>(decoded_[s][g + i].q[8 / kScales * h], 64);
        if constexpr (S == 2) Load<7>(decoded_[s + 1][g + i].q[8 / kScales * h], 64);
        Zero<kC>();
        TimesInt8<kC, kA, 6>();
        if constexpr (S == 2) {
            Zero<kC + 1>();
            TimesInt8<kC + 1, kA, 7>();
        }
        Store<kC>(dots[0][d], 64);
        if constexpr (S == 2) Store<kC + 1>(dots[1][d], 64);
    }

    // Whole tiles of two strips from the first token of a chunk on: while the dots of one group are
    // added, tiles make those of the next.
    void Tiles(int64_t s, int64_t chunk, int64_t tiles, int64_t unit) {
        constexpr int64_t kGroups = kColumns / kGroup;
        const auto at = [&](int64_t n) {
            return Row(chunk + n / kGroups * kTile) + unit + n % kGroups * kGroup;
        };
        const int64_t end = tiles * kGroups;
        for (int64_t d = 0; d < kGroup * kScales; ++d) Dots<2, 0, 2>(s, 0, d, at(0), dots_[0]);
        for (int64_t n = 0; n < end; ++n) {
            const int64_t g = n % kGroups * kGroup, t = n / kGroups * kTile;
            const ActivationBlock* next = at(std::min(n + 1, end - 1));
            const ActivationBlock* later = at(std::min(n + 2, end - 1));
            for (int half = 0; half < 2; ++half) {
                const Piece piece = {s + half, half, t, 0, g, 0, kGroup};
                if (n + 1 < end) {
                    const int64_t d = half * kGroup * kScales / 2;
                    AddWhile(
                        piece, at(n), dots_[n % 2], [&](int64_t i) __attribute__((always_inline)) {
                            Fetch(later, d + i);
                            Dots<2, 0, 2>(s, (n + 1) % kGroups * kGroup, d + i, next,
                                          dots_[(n + 1) % 2]);
                        });
                } else {
                    AddWhile(piece, at(n), dots_[n % 2], [](int64_t) {});
                }
                const int64_t done = unit + g + kGroup;
                if (args_.segment_cols != 0 && segment_ > 2 &&
                    (done % segment_ == 0 || done == units_)) {
                    Widen(s + half, t, kTile);
                }
            }
        }
    }

    // Fetches piece i, of as many as there are dots, of a group's activations into L1.
    [[gnu::always_inline]] void Fetch(const ActivationBlock* x, int64_t i) const {
        constexpr int kLines = kTile / kScales;
#pragma GCC unroll 16
        for (int k = 0; k < kLines; ++k) {
            const int64_t line = i * kLines + k;
            _mm_prefetch(x + line % kTile * x_stride_ + line / kTile, _MM_HINT_T0);
        }
    }

    // Units [begin, end) of the group at unit g of strip s, whose dots are those of strip `half`,
    // for tokens from t on; t + done is the first of these.
    struct Piece {
        int64_t s, half, t, done, g, begin, end;
    };

    template <int T>
    void AddTokens(Piece piece, const ActivationBlock* x, int64_t tokens) {
        for (; tokens - piece.done >= T; piece.done += T) Add<T>(piece, x + piece.done * x_stride_);
        if constexpr (T > 1) {
            if (piece.done < tokens) AddTokens<T / 2>(piece, x, tokens);
        }
    }

    template <int T>
    void Add(const Piece& piece, const ActivationBlock* x) {
        float(*all)[kStripRows] = sums_[piece.s] + piece.t + piece.done;
        __m512 sums[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sums[t] = _mm512_load_ps(all[t]);
        const int64_t steps = (piece.end - piece.begin) * kScales;
        for (int64_t e = 0; e < steps; ++e) AddStep<T>(piece, e, x, dots_[0], sums);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) _mm512_store_ps(all[t], sums[t]);
    }

    // A whole group for a tile of tokens; calls meanwhile(i) for i = 0, 1, ... once every two
    // steps.
    template <typename Meanwhile>
    [[gnu::always_inline]] void AddWhile(const Piece& piece, const ActivationBlock* x,
                                         const GroupDots& dots, const Meanwhile& meanwhile) {
        float(*all)[kStripRows] = sums_[piece.s] + piece.t;
        __m512 sums[kTile];
#pragma GCC unroll 16
        for (int t = 0; t < kTile; ++t) sums[t] = _mm512_load_ps(all[t]);
#pragma GCC unroll 1
        for (int64_t e = 0; e < kGroup * kScales; e += 2) {
            meanwhile(e / 2);
            AddStep<kTile>(piece, e, x, dots, sums);
            AddStep<kTile>(piece, e + 1, x, dots, sums);
            if (segment_ == 2) WidenSums(piece, sums);
        }
#pragma GCC unroll 16
        for (int t = 0; t < kTile; ++t) _mm512_store_ps(all[t], sums[t]);
    }

    // Step e of a piece: adds one unit, or one half of it, in the order that its type has.
    template <int T>
    [[gnu::always_inline]] void AddStep(const Piece& piece, int64_t e, const ActivationBlock* x,
                                        const GroupDots& dots, __m512 (&sums)[T]) const {
        const int64_t i = piece.begin + (kHalvesApart ? e % kGroup : e / kScales);
        const int64_t h = kHalvesApart ? e / kGroup : e % kScales;
        const Unit& unit = decoded_[piece.s][piece.g + i];
        AddScaled<T>(dots[piece.half][i * kScales + h] + piece.done, unit.scale[h], x + i, sums);
        AddMins<T>(unit, x + i, sums);
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

    // The end of a segment, of sums that are in registers.
    [[gnu::always_inline]] void WidenSums(const Piece& piece, __m512 (&sums)[kTile]) {
        double(*all)[kStripRows] = wide_[piece.s] + piece.t;
#pragma GCC unroll 16
        for (int t = 0; t < kTile; ++t) {
            const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sums[t]));
            const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sums[t], 1));
            _mm512_store_pd(all[t], _mm512_add_pd(_mm512_load_pd(all[t]), low));
            _mm512_store_pd(all[t] + 8, _mm512_add_pd(_mm512_load_pd(all[t] + 8), high));
            sums[t] = _mm512_setzero_ps();
        }
    }

    // The end of a segment.
    void Widen(int64_t s, int64_t token, int64_t tokens) {
        for (int64_t t = token; t < token + tokens; ++t) {
            double* wide = wide_[s][t];
            const __m256 low = _mm256_load_ps(sums_[s][t]), high = _mm256_load_ps(sums_[s][t] + 8);
            _mm512_store_pd(wide, _mm512_add_pd(_mm512_load_pd(wide), _mm512_cvtps_pd(low)));
            _mm512_store_pd(wide + 8,
                            _mm512_add_pd(_mm512_load_pd(wide + 8), _mm512_cvtps_pd(high)));
            _mm512_store_ps(sums_[s][t], _mm512_setzero_ps());
        }
    }

    void Finish(int64_t row, int64_t token, int64_t s, int64_t t) {
        if (args_.segment_cols == 0) {
            return avx512::StoreSums(args_, row, token, _mm512_load_ps(sums_[s][t]));
        }
        avx512::StoreWide(args_, row, token, _mm512_load_pd(wide_[s][t]),
                          _mm512_load_pd(wide_[s][t] + 8));
    }

    const MatMulArgs& args_;
    const int64_t x_stride_, units_, strip_bytes_, segment_;
    const bool fast_;  // segments end where groups do, or are of two units
    const Decoder decoder_ = {};
    TilesInUse tiles_;
    Unit decoded_[kStrips][kColumns];
    alignas(64) GroupDots dots_[2];
    alignas(64) float sums_[kStrips][kChunk][kStripRows];
    alignas(64) double wide_[kStrips][kChunk][kStripRows];
};

}  // namespace weft::kernels::amx
