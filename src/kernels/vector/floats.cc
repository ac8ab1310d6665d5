// F32 and F16 weights times float32 activations; BF16 weights times BF16 ones where the CPU
// multiplies those, else as floats. Any number of columns.
#include <algorithm>

#include "kernels/strips.h"
#include "kernels/vector/ahead.h"
#include "kernels/vector/store.h"

namespace weft::kernels::WEFT_SET {
namespace {

// How a vector of rows' weights of a step of kColumns columns meet activations: kXs floats, or as
// many pairs of BF16 (and kStrips strips at a time where there are many tokens). From kFetches
// tokens on, weights are fetched ahead (measured). Load: vector `part` of the strip.
struct StepF32 {
    static constexpr DType kType = DType::kF32;
    static constexpr int64_t kColumns = 1, kXs = 1, kStrips = 1;
    static constexpr int kFetches = 6;
    static Float Load(const std::byte* p, int part) {
        return Simd::Load(reinterpret_cast<const float*>(p) + part * Simd::kLanes);
    }
    // `left` columns are left.
    static Float Add(Float weights, const float* x, int64_t /*left*/, Float sums) {
        return Simd::Fma(weights, Simd::Set(*x), sums);
    }
};

struct StepF16 : StepF32 {
    static constexpr DType kType = DType::kF16;
    static constexpr int kFetches = 3;
    static Float Load(const std::byte* p, int part) {
        return Simd::LoadF16(p + part * Simd::kLanes * 2);
    }
};

// Pairs of columns.
template <typename S>
struct StepBF16 {
    static constexpr DType kType = DType::kBF16;
    static constexpr int64_t kColumns = 2, kXs = S::kDots ? 1 : 2, kStrips = S::kDots ? 2 : 1;
    static constexpr int kFetches = S::kDots ? 7 : 4;
    static Float Load(const std::byte* p, int part) {
        return S::Load(reinterpret_cast<const float*>(p) + part * S::kLanes);
    }
    static Float Add(Float weights, const float* x, int64_t left, Float sums) {
        if constexpr (S::kDots) {
            return S::Dot(weights, S::Set(*x), sums);
        } else {
            sums = S::Fma(S::FirstOfPairs(weights), S::Set(x[0]), sums);
            return left == 1 ? sums : S::Fma(S::SecondOfPairs(weights), S::Set(x[1]), sums);
        }
    }
};

// Rows of activations, and the columns of them that are multiplied.
template <typename Step>
struct Rows {
    explicit Rows(const MatMulArgs& args) {
        if constexpr (Step::kXs < Step::kColumns) {
            data = reinterpret_cast<const float*>(args.prepared);
            stride = strips::PreparedBytes(args.weight.cols) / 4;
            cols = (args.weight.cols + 31) / 32 * 32;
        } else {
            data = args.x, stride = args.x_stride, cols = args.weight.cols;
        }
    }
    const float* data = nullptr;
    int64_t stride = 0, cols = 0;
};

// Adds `count` columns of S strips times T tokens to `sums`, a row of it a vector of a strip.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddColumns(const std::byte* w, int64_t strip_bytes,
                                              const float* x, int64_t x_stride, int64_t count,
                                              Float (&sums)[S * kParts][T]) {
    constexpr int64_t kBytes = Step::kColumns * strips::BlockBytes(Step::kType);
    for (int64_t k = 0; k < count; k += Step::kColumns, w += kBytes, x += Step::kXs) {
#pragma GCC unroll 16
        for (int s = 0; T >= Step::kFetches && s < S; ++s) FetchAhead<kBytes>(w + s * strip_bytes);
#pragma GCC unroll 16
        for (int s = 0; s < S * kParts; ++s) {
            const Float weights = Step::Load(w + s / kParts * strip_bytes, s % kParts);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                sums[s][t] = Step::Add(weights, x + t * x_stride, count - k, sums[s][t]);
            }
        }
    }
}

// S strips from `row` on times T tokens from `token` on.
template <typename Step, int S, int T>
void Tile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t strip_bytes = strips::StripBytes(Step::kType, args.weight.cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> x(args);
    Float sums[S * kParts][T];
    for (auto& part : sums) std::fill(part, part + T, Simd::Zero());
    AddColumns<Step, S, T>(w, strip_bytes, x.data + token * x.stride, x.stride, x.cols, sums);
    for (int s = 0; s < S * kParts; ++s) {
        for (int t = 0; t < T; ++t) {
            StoreSums(args, row + s * Simd::kLanes, token + t, sums[s][t]);
        }
    }
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Step, int S, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t strip_bytes = strips::StripBytes(Step::kType, args.weight.cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> all(args);
    const float* x = all.data + token * all.stride;
    Wide wide[S * kParts][T];
    for (auto& part : wide) std::fill(part, part + T, Simd::WideZero());
    for (int64_t begin = 0; begin < all.cols; begin += args.segment_cols) {
        Float sums[S * kParts][T];
        for (auto& part : sums) std::fill(part, part + T, Simd::Zero());
        AddColumns<Step, S, T>(w + begin * strips::BlockBytes(Step::kType), strip_bytes,
                               x + begin / Step::kColumns * Step::kXs, all.stride,
                               std::min(args.segment_cols, all.cols - begin), sums);
        for (int s = 0; s < S * kParts; ++s) {
            for (int t = 0; t < T; ++t) {
                wide[s][t] = Simd::AddWide(wide[s][t], Simd::Widen(sums[s][t]));
            }
        }
    }
    for (int s = 0; s < S * kParts; ++s) {
        for (int t = 0; t < T; ++t) {
            StoreWide(args, row + s * Simd::kLanes, token + t, wide[s][t]);
        }
    }
}

constexpr int kTokens = Simd::kRegisters == 32 ? 12 : 4;  // of a tile

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
    constexpr int64_t kTokenBytes = Simd::kRegisters * 12 * 1024;
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

// Many tokens: twelve (or four) of them share a weight. One token: four strips at a time, so that
// four chains of sums are under way.
template <typename Step>
void Strips(const MatMulArgs& args, Range rows) {
    int64_t row = rows.begin;
    if (args.rows == 1) {
        row = Groups<Step, 4, 1>(args, row, rows.end);
    } else {
        row = Groups<Step, Step::kStrips, kTokens>(args, row, rows.end);
    }
    Groups<Step, 1, kTokens>(args, row, rows.end);
}

}  // namespace

void MatMulFloats(const MatMulArgs& args, Range rows) {
    if (args.weight.dtype == DType::kF32) return Strips<StepF32>(args, rows);
    if (args.weight.dtype == DType::kF16) return Strips<StepF16>(args, rows);
    WEFT_CHECK(args.weight.dtype == DType::kBF16);
    Strips<StepBF16<Simd>>(args, rows);
}

}  // namespace weft::kernels::WEFT_SET
