#include "kernels/avx512/floats.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/avx512/store.h"
#include "kernels/strips.h"

namespace weft::kernels::avx512 {
namespace {

// How 16 rows' weights of one k become floats.
struct StepF32 {
    static constexpr DType kType = DType::kF32;
    static __m512 Load(const std::byte* p) { return _mm512_loadu_ps(p); }
};

struct StepF16 {
    static constexpr DType kType = DType::kF16;
    static __m512 Load(const std::byte* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
};

struct StepBF16 {
    static constexpr DType kType = DType::kBF16;
    static __m512 Load(const std::byte* p) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
};

// Adds `count` columns of S strips times T tokens to `sums`.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddColumns(const std::byte* w, int64_t strip_bytes,
                                              const float* x, int64_t x_stride, int64_t count,
                                              __m512 (&sums)[S][T]) {
    for (int64_t k = 0; k < count; ++k, w += strips::BlockBytes(Step::kType)) {
#pragma GCC unroll 16
        for (int s = 0; s < S; ++s) {
            const __m512 weights = Step::Load(w + s * strip_bytes);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const __m512 value = _mm512_set1_ps(x[t * x_stride + k]);
                sums[s][t] = _mm512_fmadd_ps(weights, value, sums[s][t]);
            }
        }
    }
}

// S strips from `row` on times T tokens from `token` on.
template <typename Step, int S, int T>
void Tile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = strips::BlockBytes(Step::kType);
    const int64_t cols = args.weight.cols, strip_bytes = cols * kBytes;
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const float* x = args.x + token * args.x_stride;
    __m512 sums[S][T];
    for (auto& strip : sums) std::fill(strip, strip + T, _mm512_setzero_ps());
    AddColumns<Step, S, T>(w, strip_bytes, x, args.x_stride, cols, sums);
    for (int s = 0; s < S; ++s) {
        for (int t = 0; t < T; ++t) StoreSums(args, row + s * kStripRows, token + t, sums[s][t]);
    }
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Step, int S, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = strips::BlockBytes(Step::kType);
    const int64_t cols = args.weight.cols, strip_bytes = cols * kBytes;
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const float* x = args.x + token * args.x_stride;
    __m512d low[S][T], high[S][T];
    for (int s = 0; s < S; ++s) {
        for (int t = 0; t < T; ++t) low[s][t] = high[s][t] = _mm512_setzero_pd();
    }
    for (int64_t begin = 0; begin < cols; begin += args.segment_cols) {
        __m512 sums[S][T];
        for (auto& strip : sums) std::fill(strip, strip + T, _mm512_setzero_ps());
        AddColumns<Step, S, T>(w + begin * kBytes, strip_bytes, x + begin, args.x_stride,
                               std::min(args.segment_cols, cols - begin), sums);
        for (int s = 0; s < S; ++s) {
            for (int t = 0; t < T; ++t) {
                const __m256 upper = _mm512_extractf32x8_ps(sums[s][t], 1);
                const __m256 lower = _mm512_castps512_ps256(sums[s][t]);
                low[s][t] = _mm512_add_pd(low[s][t], _mm512_cvtps_pd(lower));
                high[s][t] = _mm512_add_pd(high[s][t], _mm512_cvtps_pd(upper));
            }
        }
    }
    for (int s = 0; s < S; ++s) {
        for (int t = 0; t < T; ++t) {
            StoreWide(args, row + s * kStripRows, token + t, low[s][t], high[s][t]);
        }
    }
}

template <typename Step, int S, int T>
void Tokens(const MatMulArgs& args, int64_t row, int64_t token, int64_t tokens) {
    if (tokens == T && args.segment_cols != 0) return SegmentedTile<Step, S, T>(args, row, token);
    if (tokens == T) return Tile<Step, S, T>(args, row, token);
    if constexpr (T > 1) Tokens<Step, S, T - 1>(args, row, token, tokens);
}

// Many tokens: one strip at a time. One token: four, so that four chains of sums are under way.
template <typename Step>
void Strips(const MatMulArgs& args, Range rows) {
    constexpr int kTile = 12;
    constexpr int64_t kTokenBytes = 384 * 1024;  // activations that stay in L2
    int64_t row = rows.begin;
    if (args.rows == 1) {
        for (; row + 4 * kStripRows <= rows.end; row += 4 * kStripRows)
            Tokens<Step, 4, 1>(args, row, 0, 1);
    }
    const int64_t fit = std::max<int64_t>(1, kTokenBytes / (4 * args.weight.cols) / kTile) * kTile;
    for (int64_t begin = 0; begin < args.rows; begin += fit) {
        const int64_t end = std::min(args.rows, begin + fit);
        for (int64_t strip = row; strip < rows.end; strip += kStripRows) {
            for (int64_t token = begin; token < end; token += kTile) {
                Tokens<Step, 1, kTile>(args, strip, token, std::min<int64_t>(kTile, end - token));
            }
        }
    }
}

}  // namespace

void MatMulFloats(const MatMulArgs& args, Range rows) {
    if (args.weight.dtype == DType::kF32) return Strips<StepF32>(args, rows);
    if (args.weight.dtype == DType::kF16) return Strips<StepF16>(args, rows);
    WEFT_CHECK(args.weight.dtype == DType::kBF16);
    Strips<StepBF16>(args, rows);
}

}  // namespace weft::kernels::avx512
