#include "kernels/avx512/matmul.h"

#include <algorithm>

#include "kernels/avx512/blocks.h"
#include "kernels/avx512/decoded.h"
#include "kernels/avx512/floats.h"
#include "kernels/avx512/low_bits.h"
#include "kernels/avx512/store.h"

namespace weft::kernels::avx512 {
namespace {

constexpr int kTile = 12;                    // tokens that share a decoded block
constexpr int64_t kTokenBytes = 384 * 1024;  // activations that stay in L2 beside a strip

// One strip times T tokens from `token` on.
template <typename Block, int T>
void StripTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = strips::BlockBytes(Block::kType);
    const int64_t units = args.weight.cols / 32;
    const int64_t x_stride = strips::PreparedBlocks(args.weight.cols);
    const std::byte* w =
        args.weight.data + row / kStripRows * strips::StripBytes(Block::kType, args.weight.cols);
    const auto* x = reinterpret_cast<const ActivationBlock*>(args.prepared) + token * x_stride;
    __m512 sums[T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_ps();
    for (const ActivationBlock* end = x + units; x != end; x += Block::kUnits, w += kBytes) {
        Block::template Times<T>(w, x, x_stride, sums);
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) StoreSums(args, row, token + t, sums[t]);
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Block, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = strips::BlockBytes(Block::kType);
    const int64_t segment = std::max<int64_t>(args.segment_cols / 32, Block::kUnits);
    const int64_t units = args.weight.cols / 32;
    const int64_t x_stride = strips::PreparedBlocks(args.weight.cols);
    const std::byte* w =
        args.weight.data + row / kStripRows * strips::StripBytes(Block::kType, args.weight.cols);
    const auto* x = reinterpret_cast<const ActivationBlock*>(args.prepared) + token * x_stride;
    __m512d low[T], high[T];
    for (int t = 0; t < T; ++t) low[t] = high[t] = _mm512_setzero_pd();
    for (const ActivationBlock* end = x + units; x != end;) {
        const ActivationBlock* stop = x + std::min<int64_t>(segment, end - x);
        __m512 sums[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) sums[t] = _mm512_setzero_ps();
        for (; x != stop; x += Block::kUnits, w += kBytes) {
            Block::template Times<T>(w, x, x_stride, sums);
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            low[t] = _mm512_add_pd(low[t], _mm512_cvtps_pd(_mm512_castps512_ps256(sums[t])));
            high[t] = _mm512_add_pd(high[t], _mm512_cvtps_pd(_mm512_extractf32x8_ps(sums[t], 1)));
        }
    }
    for (int t = 0; t < T; ++t) StoreWide(args, row, token + t, low[t], high[t]);
}

// One strip times `tokens` (1 to kTile) tokens.
template <typename Block, int T = kTile>
void StripTokens(const MatMulArgs& args, int64_t row, int64_t token, int64_t tokens) {
    if (tokens == T && args.segment_cols != 0) return SegmentedTile<Block, T>(args, row, token);
    if (tokens == T) return StripTile<Block, T>(args, row, token);
    if constexpr (T > 1) StripTokens<Block, T - 1>(args, row, token, tokens);
}

template <typename Block>
void Strips(const MatMulArgs& args, Range rows) {
    const int64_t row_bytes = strips::PreparedBytes(args.weight.cols);
    const int64_t fit = std::max<int64_t>(1, kTokenBytes / row_bytes / kTile) * kTile;
    for (int64_t begin = 0; begin < args.rows; begin += fit) {
        const int64_t end = std::min(args.rows, begin + fit);
        const int64_t tiles = (end - begin + kTile - 1) / kTile;
        for (int64_t row = rows.begin; row < rows.end; row += kStripRows) {
            for (int64_t i = 0; i < tiles; ++i) {  // tiles of nearly the same size
                const Range share =
                    Share(end - begin, 1, static_cast<int>(i), static_cast<int>(tiles));
                StripTokens<Block>(args, row, begin + share.begin, share.end - share.begin);
            }
        }
    }
}

}  // namespace

void MatMul(const MatMulArgs& args, int part, int parts) {
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    switch (strips::FormOf(args.weight.dtype)) {
        case strips::Form::kFloats: return MatMulFloats(args, rows);
        case strips::Form::kQ4_0: return Strips<BlockQ4_0>(args, rows);
        case strips::Form::kQ4_1: return Strips<BlockQ4_1>(args, rows);
        case strips::Form::kQ5_0: return Strips<BlockQ5_0>(args, rows);
        case strips::Form::kQ5_1: return Strips<BlockQ5_1>(args, rows);
        case strips::Form::kQ8_0: return Strips<BlockQ8_0>(args, rows);
        case strips::Form::kIQ4_NL: return Strips<BlockIQ4_NL>(args, rows);
        case strips::Form::kIQ4_XS: return Strips<BlockIQ4_XS>(args, rows);
        case strips::Form::kMXFP4: return Strips<BlockMXFP4>(args, rows);
        case strips::Form::kW4: return Strips<BlockW4>(args, rows);
        case strips::Form::kW8: return Strips<BlockW8>(args, rows);
        case strips::Form::kTernary: return Strips<BlockTernary>(args, rows);
        case strips::Form::kQ2_K: return Strips<BlockQ2_K>(args, rows);
        case strips::Form::kQ3_K: return Strips<BlockQ3_K>(args, rows);
        case strips::Form::kQ4_K: return Strips<BlockQ4_K>(args, rows);
        case strips::Form::kQ5_K: return Strips<BlockQ5_K>(args, rows);
        case strips::Form::kQ6_K: return Strips<BlockQ6_K>(args, rows);
        case strips::Form::kIQ1_S: return MatMulDecoded<DType::kIQ1_S>(args, rows);
        case strips::Form::kIQ1_M: return MatMulDecoded<DType::kIQ1_M>(args, rows);
        case strips::Form::kIQ2_XXS: return MatMulDecoded<DType::kIQ2_XXS>(args, rows);
        case strips::Form::kIQ2_XS: return MatMulDecoded<DType::kIQ2_XS>(args, rows);
        case strips::Form::kIQ2_S: return MatMulDecoded<DType::kIQ2_S>(args, rows);
        case strips::Form::kIQ3_XXS: return MatMulDecoded<DType::kIQ3_XXS>(args, rows);
        case strips::Form::kIQ3_S: return MatMulDecoded<DType::kIQ3_S>(args, rows);
    }
}

}  // namespace weft::kernels::avx512
