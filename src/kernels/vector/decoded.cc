// Weights that are decoded before use (decoded.h) times activations.
//
// A Grid has kType, kScales (scales for 32 columns: 1 or 2) and
//   Decode(packed, units)   one block of 16 rows
// and TimesUnit multiplies a decoded unit's rows. A block of 16 rows is decoded once
// per kMostTokens tokens. The order of a row's sums depends only on its columns.
#include <algorithm>
#include <cstring>

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
        for (int64_t begin = 0; begin < args_.rows; begin += kMostTokens) {
            const int64_t count = std::min<int64_t>(kMostTokens, args_.rows - begin);
            for (int64_t row = rows.begin; row < rows.end; row += kStripRows) {
                Strip(row, begin, count);
            }
        }
    }

  private:
    static constexpr int kTile = Simd::kRegisters == 32 ? 12 : 4;
    static constexpr int kMostTokens = 4 * kTile;

    void Strip(int64_t row, int64_t token, int64_t tokens) {
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
            grid_.Decode(w, units_);
            w += weight_tiles::BlockBytes(Grid::kType);
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
        for (int64_t t = 0; t < tokens; t += kTile) {
            const int64_t tile = std::min<int64_t>(kTile, tokens - t);
            Tile<kTile>(TokensFrom(args_, token + t) + first, tile, units, sums_ + t);
        }
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
#pragma GCC unroll 1
        for (int64_t u = units.begin; u < units.end; ++u) {
            TimesUnit<T, Grid::kScales>(units_[u], x + u, own);
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
    const bool multiplied =
        Multiply<GridIQ1_S, GridIQ1_M, GridIQ2_XXS, GridIQ2_XS, GridIQ2_S, GridIQ3_XXS, GridIQ3_S>(
            args, rows);
    WEFT_CHECK(multiplied && "a type without a code book");
}

}  // namespace weft::kernels::WEFT_SET
