#include "kernels/avx512/floats.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/avx512/store.h"
#include "kernels/strips.h"

namespace weft::kernels::avx512 {
namespace {

// How the 16 rows' weights of a step of kColumns columns meet activations, of which it takes an X
// (and kStrips strips at a time where there are many tokens).
struct StepF32 {
    static constexpr DType kType = DType::kF32;
    static constexpr int64_t kColumns = 1, kStrips = 1;
    using X = float;
    static __m512 Load(const std::byte* p) { return _mm512_loadu_ps(p); }
    static __m512 Add(__m512 weights, X x, __m512 sums) {
        return _mm512_fmadd_ps(weights, _mm512_set1_ps(x), sums);
    }
};

struct StepF16 : StepF32 {
    static constexpr DType kType = DType::kF16;
    static __m512 Load(const std::byte* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
};

struct StepBF16 {
    static constexpr DType kType = DType::kBF16;
    static constexpr int64_t kColumns = 2, kStrips = 2;
    using X = uint32_t;
    static __m512bh Load(const std::byte* p) { return (__m512bh)_mm512_loadu_si512(p); }
    static __m512 Add(__m512bh weights, X x, __m512 sums) {
        return _mm512_dpbf16_ps(sums, weights, (__m512bh)_mm512_set1_epi32(static_cast<int>(x)));
    }
};

// Rows of activations, `stride` X apart.
template <typename Step>
struct Rows {
    explicit Rows(const MatMulArgs& args) {
        if constexpr (Step::kType == DType::kBF16) {
            data = reinterpret_cast<const uint32_t*>(args.prepared);
            stride = strips::PreparedBytes(args.weight.cols) / 4;
        } else {
            data = args.x, stride = args.x_stride;
        }
    }
    const typename Step::X* data = nullptr;
    int64_t stride = 0;
};

// Adds `count` steps of S strips times T tokens to `sums`.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddSteps(const std::byte* w, int64_t strip_bytes,
                                            const typename Step::X* x, int64_t x_stride,
                                            int64_t count, __m512 (&sums)[S][T]) {
    for (int64_t k = 0; k < count; ++k, w += Step::kColumns * strips::BlockBytes(Step::kType)) {
#pragma GCC unroll 16
        for (int s = 0; s < S; ++s) {
            const auto weights = Step::Load(w + s * strip_bytes);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                sums[s][t] = Step::Add(weights, x[t * x_stride + k], sums[s][t]);
            }
        }
    }
}

// S strips from `row` on times T tokens from `token` on.
template <typename Step, int S, int T>
void Tile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t strip_bytes = strips::StripBytes(Step::kType, args.weight.cols);
    const int64_t steps = strip_bytes / strips::BlockBytes(Step::kType) / Step::kColumns;
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> x(args);
    __m512 sums[S][T];
    for (auto& strip : sums) std::fill(strip, strip + T, _mm512_setzero_ps());
    AddSteps<Step, S, T>(w, strip_bytes, x.data + token * x.stride, x.stride, steps, sums);
    for (int s = 0; s < S; ++s) {
        for (int t = 0; t < T; ++t) StoreSums(args, row + s * kStripRows, token + t, sums[s][t]);
    }
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Step, int S, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    constexpr int64_t kBytes = Step::kColumns * strips::BlockBytes(Step::kType);
    const int64_t strip_bytes = strips::StripBytes(Step::kType, args.weight.cols);
    const int64_t steps = strip_bytes / kBytes, segment = args.segment_cols / Step::kColumns;
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> all(args);
    const typename Step::X* x = all.data + token * all.stride;
    __m512d low[S][T], high[S][T];
    for (int s = 0; s < S; ++s) {
        for (int t = 0; t < T; ++t) low[s][t] = high[s][t] = _mm512_setzero_pd();
    }
    for (int64_t begin = 0; begin < steps; begin += segment) {
        __m512 sums[S][T];
        for (auto& strip : sums) std::fill(strip, strip + T, _mm512_setzero_ps());
        AddSteps<Step, S, T>(w + begin * kBytes, strip_bytes, x + begin, all.stride,
                             std::min(segment, steps - begin), sums);
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

// Whole groups of S strips from `row` on times all tokens, the activations of some of which stay in
// L2 meanwhile; returns the first row that is left.
template <typename Step, int S, int T>
int64_t Groups(const MatMulArgs& args, int64_t row, int64_t row_end) {
    constexpr int64_t kTokenBytes = 384 * 1024;
    const int64_t fit = std::max<int64_t>(1, kTokenBytes / (4 * args.weight.cols) / T) * T;
    const int64_t strips = (row_end - row + kStripRows - 1) / kStripRows;
    const int64_t stop = std::min(row_end, row + strips / S * S * kStripRows);
    for (int64_t begin = 0; begin < args.rows && row < stop; begin += fit) {
        const int64_t end = std::min(args.rows, begin + fit);
        for (int64_t group = row; group < stop; group += S * kStripRows) {
            for (int64_t token = begin; token < end; token += T) {
                Tokens<Step, S, T>(args, group, token, std::min<int64_t>(T, end - token));
            }
        }
    }
    return std::max(row, stop);
}

// Many tokens: twelve of them share a weight. One token: four strips at a time, so that four chains
// of sums are under way.
template <typename Step>
void Strips(const MatMulArgs& args, Range rows) {
    int64_t row = rows.begin;
    if (args.rows == 1) {
        row = Groups<Step, 4, 1>(args, row, rows.end);
    } else {
        row = Groups<Step, Step::kStrips, 12>(args, row, rows.end);
    }
    Groups<Step, 1, 12>(args, row, rows.end);
}

}  // namespace

void MatMulFloats(const MatMulArgs& args, Range rows) {
    if (args.weight.dtype == DType::kF32) return Strips<StepF32>(args, rows);
    if (args.weight.dtype == DType::kF16) return Strips<StepF16>(args, rows);
    WEFT_CHECK(args.weight.dtype == DType::kBF16);
    Strips<StepBF16>(args, rows);
}

}  // namespace weft::kernels::avx512
