// Weights that are decoded before use (decoded.h) times activations.
//
// A Grid has kType and
//   Decode(packed, units)             one block of 16 rows
// and either kScales (scales for 32 columns: 1 or 2), for TimesUnit, or
//   Times<T>(units, range, x, sums)   multiplies units of a decoded block
// A block of 16 rows is decoded once for up to kMostTokens tokens. The order of a row's sums
// depends only on its columns.
#include <cstring>

#include "kernels/vector/prefetch.h"
#include "kernels/vector/store.h"
#if defined(WEFT_OWN_PRODUCTS)
#include WEFT_SET_FILE(grids.h)
#else
#include "kernels/vector/grids.h"
#endif

namespace weft::kernels::WEFT_SET {
namespace {

template <typename Grid>
class DecodedMatMul {
  public:
    explicit DecodedMatMul(const MatMulArgs& args) : args_(args) {}

    // Computes y for the weight's rows [rows.begin, rows.end) and all tokens.
    void Run(Range rows) {
        ForTiles(args_.rows, kMostTokens, [&](const Range& tokens) {
            for (int64_t row = rows.begin; row < rows.end; row += kStripRows) {
                MultiplyStrip(row, tokens.begin, tokens.end - tokens.begin);
            }
        });
    }

  private:
    static constexpr int kTile = Simd::kRegisters == 32 ? 12 : 4;
    static constexpr int kMostTokens = Simd::kRegisters == 32 ? 48 : 32;

    // Calls `call` for tiles of at most `most` of the tokens, of nearly equal size.
    template <typename Call>
    static void ForTiles(int64_t tokens, int64_t most, const Call& call) {
        const auto tiles = static_cast<int>((tokens + most - 1) / most);
        for (int i = 0; i < tiles; ++i) call(Share(tokens, Simd::kMatrices ? 2 : 1, i, tiles));
    }

    void MultiplyStrip(int64_t row, int64_t token, int64_t tokens) {
        const int64_t segment = args_.segment_cols / 32, end = args_.weight.cols / 32;
        const int64_t step =
            args_.EndsInBlocks(32 * kUnitsPerBlock) ? segment : int64_t{kUnitsPerBlock};
        const Range used = segment == 0 ? Range{0, end} : args_.UnitsUsed();
        const std::byte* w =
            args_.weight.data +
            row / kStripRows * weight_tiles::StripBytes(Grid::kType, args_.weight.cols);
        std::memset(sums_, 0, static_cast<size_t>(tokens) * sizeof sums_[0]);
        std::memset(wide_, 0, static_cast<size_t>(tokens) * sizeof wide_[0]);
        for (int64_t unit = 0; unit < end; unit += kUnitsPerBlock) {
            constexpr int64_t kBytes = weight_tiles::BlockBytes(Grid::kType);
            grid_.Decode(w, units_);
            if constexpr (Simd::kLanes == 8) FetchAhead<kBytes>(w);
            w += kBytes;
            for (int64_t done = unit; done < unit + kUnitsPerBlock;) {
                const bool zeros = done < used.begin || done >= used.end;
                if (!zeros) AddUnits(unit, done, step, token, tokens);
                done += step;
                if (segment != 0 && (done % segment == 0 || done == end)) Widen(tokens);
            }
        }
        for (int64_t t = 0; t < tokens; ++t) {
            args_.segment_cols != 0 ? StoreWide(args_, row, token + t, Strip::LoadWide(wide_[t]))
                                    : StoreSums(args_, row, token + t, Strip::Load(sums_[t]));
        }
    }

    // Adds units [begin, begin + count) of the matrix, from the decoded block that begins at
    // `first`.
    void AddUnits(int64_t first, int64_t begin, int64_t count, int64_t token, int64_t tokens) {
        const Range units{begin - first, begin - first + count};
        ForTiles(tokens, kTile, [&](const Range& tile) {
            const Tokens x = TokensFrom(args_, token + tile.begin) + first;
            Tile<kTile>(x, tile.end - tile.begin, units, sums_ + tile.begin);
        });
    }

    template <int T>
    void Tile(Tokens x, int64_t tokens, const Range& units, float (*sums)[kStripRows]) {
        if (tokens == T) return Times<T>(x, units, sums);
        if constexpr (T > 1) Tile<T - 1>(x, tokens, units, sums);
    }

    // sums[t][row] += those units of the block times the activations of token t.
    template <int T>
    void Times(Tokens x, const Range& units, float (*sums)[kStripRows]) {
        Floats own[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) own[t] = Strip::Load(sums[t]);
        if constexpr (requires { Grid::template Times<T>(units_, units, x, own); }) {
            Grid::template Times<T>(units_, units, x, own);
        } else {
#pragma GCC unroll 1
            for (int64_t u = units.begin; u < units.end; ++u) {
                TimesUnit<T, Grid::kScales>(units_[u], x + u, own);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) Strip::Store(sums[t], own[t]);
    }

    void Widen(int64_t tokens) {
        for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t r = 0; r < kStripRows; ++r) {
                wide_[t][r] += static_cast<double>(sums_[t][r]);
                sums_[t][r] = 0;
            }
        }
    }

    const MatMulArgs& args_;
    const Grid& grid_ = TheGrid<Grid>();
    DecodedUnit units_[kUnitsPerBlock];
    alignas(64) float sums_[kMostTokens][kStripRows];
    alignas(64) double wide_[kMostTokens][kStripRows];
};

template <typename... Grid>
bool Multiply(const MatMulArgs& args, Range rows) {
    return ((args.weight.dtype == Grid::kType && (DecodedMatMul<Grid>(args).Run(rows), true)) ||
            ...);
}

}  // namespace

void MatMulDecoded(const MatMulArgs& args, Range rows) {
#if !defined(WEFT_OWN_PRODUCTS)
    if (Multiply<GridQ5_K, GridQ6_K>(args, rows)) return;
#endif
    const bool multiplied =
        Multiply<GridIQ1_S, GridIQ1_M, GridIQ2_XXS, GridIQ2_XS, GridIQ2_S, GridIQ3_XXS, GridIQ3_S>(
            args, rows);
    WEFT_CHECK(multiplied && "a type without a code book");
}

}  // namespace weft::kernels::WEFT_SET
