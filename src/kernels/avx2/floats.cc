#include "kernels/avx2/floats.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/avx2/store.h"
#include "kernels/strips.h"

namespace weft::kernels::avx2 {
namespace {

// How 8 rows' weights of a step of kColumns become floats: those of column i; h: which half of the
// strip.
struct StepF32 {
    static constexpr DType kType = DType::kF32;
    static constexpr int64_t kColumns = 1;
    static __m256 Load(const std::byte* p, int h, int64_t) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8 * h);
    }
};

struct StepF16 {
    static constexpr DType kType = DType::kF16;
    static constexpr int64_t kColumns = 1;
    static __m256 Load(const std::byte* p, int h, int64_t) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * h)));
    }
};

struct StepBF16 {
    static constexpr DType kType = DType::kBF16;
    static constexpr int64_t kColumns = 2;
    static __m256 Load(const std::byte* p, int h, int64_t i) {
        const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * h));
        const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(pairs, 16)
                                          : _mm256_and_si256(pairs, upper));
    }
};

// Adds `count` columns of S strips times T tokens to `sums`, one row of it a half strip.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddColumns(const std::byte* w, int64_t strip_bytes,
                                              const float* x, int64_t x_stride, int64_t count,
                                              __m256 (&sums)[2 * S][T]) {
    constexpr int64_t kColumns = Step::kColumns;
    for (int64_t k = 0; k < count; k += kColumns, w += kColumns * strips::BlockBytes(Step::kType)) {
        for (int64_t i = 0; i < kColumns && k + i < count; ++i) {
#pragma GCC unroll 8
            for (int s = 0; s < 2 * S; ++s) {
                const __m256 weights = Step::Load(w + s / 2 * strip_bytes, s % 2, i);
#pragma GCC unroll 4
                for (int t = 0; t < T; ++t) {
                    const __m256 value = _mm256_set1_ps(x[t * x_stride + k + i]);
                    sums[s][t] = _mm256_fmadd_ps(weights, value, sums[s][t]);
                }
            }
        }
    }
}

// S strips from `row` on times T tokens from `token` on.
template <typename Step, int S, int T>
void Tile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t cols = args.weight.cols;
    const int64_t strip_bytes = strips::StripBytes(Step::kType, cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const float* x = args.x + token * args.x_stride;
    __m256 sums[2 * S][T];
    for (auto& half : sums) std::fill(half, half + T, _mm256_setzero_ps());
    AddColumns<Step, S, T>(w, strip_bytes, x, args.x_stride, cols, sums);
    for (int s = 0; s < 2 * S; ++s) {
        for (int t = 0; t < T; ++t) StoreSums(args, row + 8 * s, token + t, sums[s][t]);
    }
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Step, int S, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = strips::BlockBytes(Step::kType);
    const int64_t cols = args.weight.cols, strip_bytes = strips::StripBytes(Step::kType, cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const float* x = args.x + token * args.x_stride;
    __m256d low[2 * S][T], high[2 * S][T];
    for (int s = 0; s < 2 * S; ++s) {
        for (int t = 0; t < T; ++t) low[s][t] = high[s][t] = _mm256_setzero_pd();
    }
    for (int64_t begin = 0; begin < cols; begin += args.segment_cols) {
        __m256 sums[2 * S][T];
        for (auto& half : sums) std::fill(half, half + T, _mm256_setzero_ps());
        AddColumns<Step, S, T>(w + begin * kBytes, strip_bytes, x + begin, args.x_stride,
                               std::min(args.segment_cols, cols - begin), sums);
        for (int s = 0; s < 2 * S; ++s) {
            for (int t = 0; t < T; ++t) {
                const __m128 upper = _mm256_extractf128_ps(sums[s][t], 1);
                const __m128 lower = _mm256_castps256_ps128(sums[s][t]);
                low[s][t] = _mm256_add_pd(low[s][t], _mm256_cvtps_pd(lower));
                high[s][t] = _mm256_add_pd(high[s][t], _mm256_cvtps_pd(upper));
            }
        }
    }
    for (int s = 0; s < 2 * S; ++s) {
        for (int t = 0; t < T; ++t) {
            StoreWide(args, row + 8 * s, token + t, low[s][t], high[s][t]);
        }
    }
}

template <typename Step, int S, int T>
void Tokens(const MatMulArgs& args, int64_t row, int64_t token, int64_t tokens) {
    if (tokens == T && args.segment_cols != 0) return SegmentedTile<Step, S, T>(args, row, token);
    if (tokens == T) return Tile<Step, S, T>(args, row, token);
    if constexpr (T > 1) Tokens<Step, S, T - 1>(args, row, token, tokens);
}

// Many tokens: one strip at a time. One token: four, so that eight chains of sums are under way.
template <typename Step>
void Strips(const MatMulArgs& args, Range rows) {
    constexpr int kTile = 4;
    constexpr int64_t kTokenBytes = 192 * 1024;  // activations that stay in L2
    int64_t row = rows.begin;
    if (args.rows == 1) {
        for (; row + 4 * kStripRows <= rows.end; row += 4 * kStripRows) {
            Tokens<Step, 4, 1>(args, row, 0, 1);
        }
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

}  // namespace weft::kernels::avx2
