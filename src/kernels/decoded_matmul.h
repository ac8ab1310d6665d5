// Weights that are decoded before use (decoded.h) times activations: the loops, for any vectors.
//
// A Grid has kType, kScales (scales for 32 columns: 1 or 2) and
//   Decode(packed, units)   one block of 16 rows
// An Isa has kTile, and
//   Times<T, kScales>(units, x, x_stride, sums)   sums[t][row] += the block's units times the
//                                                 activations x + t * x_stride
//   StoreSums(args, row, token, sums)             sums: 16 floats of a strip, to y (or wide), with
//                                                 the bias
//   StoreWide(args, row, token, sums)             the same of 16 doubles
// One block of 16 rows is decoded for kMostTokens tokens. The order of a row's sums depends on
// nothing but its columns.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/decoded.h"
#include "kernels/strips.h"

namespace weft::kernels {

template <typename Isa, typename Grid>
class DecodedMatMul {
  public:
    explicit DecodedMatMul(const MatMulArgs& args) : args_(args) {}

    // y of the weight's rows [rows.begin, rows.end) for every token.
    void Run(Range rows) {
        for (int64_t begin = 0; begin < args_.rows; begin += kMostTokens) {
            const int64_t count = std::min<int64_t>(kMostTokens, args_.rows - begin);
            for (int64_t row = rows.begin; row < rows.end; row += kStripRows) {
                Strip(row, begin, count);
            }
        }
    }

  private:
    static constexpr int kMostTokens = 4 * Isa::kTile;
    using ActivationBlock = strips::ActivationBlock;

    void Strip(int64_t row, int64_t token, int64_t tokens) {
        const int64_t segment = std::max<int64_t>(args_.segment_cols / 32, kUnitsPerBlock);
        const int64_t end = args_.weight.cols / 32;
        const std::byte* w = args_.weight.data +
                             row / kStripRows * strips::StripBytes(Grid::kType, args_.weight.cols);
        std::memset(sums_, 0, static_cast<size_t>(tokens) * sizeof sums_[0]);
        std::memset(wide_, 0, static_cast<size_t>(tokens) * sizeof wide_[0]);
        for (int64_t unit = 0; unit < end; unit += kUnitsPerBlock) {
            grid_.Decode(w, units_);
            w += strips::BlockBytes(Grid::kType);
            AddBlock(unit, token, tokens);
            const int64_t done = unit + kUnitsPerBlock;
            if (args_.segment_cols != 0 && (done % segment == 0 || done == end)) Widen(tokens);
        }
        for (int64_t t = 0; t < tokens; ++t) {
            args_.segment_cols != 0 ? Isa::StoreWide(args_, row, token + t, wide_[t])
                                    : Isa::StoreSums(args_, row, token + t, sums_[t]);
        }
    }

    void AddBlock(int64_t first_unit, int64_t token, int64_t tokens) {
        const int64_t x_stride = strips::PreparedBlocks(args_.weight.cols);
        const auto* x = reinterpret_cast<const ActivationBlock*>(args_.prepared) +
                        token * x_stride + first_unit;
        for (int64_t t = 0; t < tokens; t += Isa::kTile) {
            const int64_t tile = std::min<int64_t>(Isa::kTile, tokens - t);
            Tile<Isa::kTile>(x + t * x_stride, x_stride, tile, sums_ + t);
        }
    }

    template <int T>
    void Tile(const ActivationBlock* x, int64_t x_stride, int64_t tokens,
              float (*sums)[kStripRows]) {
        if (tokens == T) return Isa::template Times<T, Grid::kScales>(units_, x, x_stride, sums);
        if constexpr (T > 1) Tile<T - 1>(x, x_stride, tokens, sums);
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

}  // namespace weft::kernels
