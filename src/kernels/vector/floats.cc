// F32 and F16 weights times float32 activations; BF16 and FP8 weights times BF16 activations on
// CPUs that multiply those, else as floats. Any number of columns (FP8: whole blocks).
#include <algorithm>

#include "kernels/vector/prefetch.h"
#include "kernels/vector/store.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::WEFT_SET {
namespace {

constexpr int kMostTokens = Simd::kRegisters == 32 ? 12 : 6;  // per tile
// With 16 registers and two vectors per strip, an activation is broadcast once for both vectors;
// otherwise the loads would bound a tile.
constexpr bool kSharesBroadcasts = Simd::kRegisters == 16 && kParts == 2;

// How the weights of a vector of rows, for a step of kColumns columns, are multiplied by
// activations: by kXs floats, or by as many pairs of BF16 (kStrips strips at a time for many
// tokens). From kFetches tokens on, weights are prefetched (measured). Load: vector `part` of the
// strip.
struct StepF32 {
    static constexpr DType kType = DType::kF32;
    static constexpr int64_t kColumns = 1, kXs = 1, kStrips = 1;
    static constexpr int kFetches = 6, kTokens = kMostTokens;
    static Float Load(const std::byte* p, int part) {
        return Simd::Load(reinterpret_cast<const float*>(p) + part * Simd::kLanes);
    }
    // The weights of column `col` of the step.
    static Float Column(Float weights, int /*col*/) { return weights; }
    // `left` columns remain.
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
    static constexpr int kFetches = S::kDots ? 7 : 4, kTokens = kMostTokens;
    static Float Load(const std::byte* p, int part) {
        return S::Load(reinterpret_cast<const float*>(p) + part * S::kLanes);
    }
    static Float Column(Float weights, int col) {
        return col == 0 ? S::FirstOfPairs(weights) : S::SecondOfPairs(weights);
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

// Four columns of FP8 at a time, as BF16 or as floats, which both represent the codes exactly. A
// block's scale multiplies the sum of its products. Add: the products of columns k to k + 3; x:
// column k.
template <typename S>
struct StepFP8 {
    static constexpr DType kType = DType::kFP8;
    static constexpr int64_t kColumns = 2, kXs = 1, kStrips = 2;
    static constexpr int kFetches = 3, kTokens = 8;
    static constexpr float kScale = 1;  // of the values being added
    struct Codes : S::E4M3Tables {
        template <int T>
        [[gnu::always_inline]] void Add(const std::byte* codes, const float* x, int64_t x_stride,
                                        Float (&dots)[T]) const {
            Float even, odd;
            this->Pairs(codes, &even, &odd);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                dots[t] = S::Dot(even, S::Set(x[t * x_stride]), dots[t]);
                dots[t] = S::Dot(odd, S::Set(x[t * x_stride + 1]), dots[t]);
            }
        }
    };
};
template <typename S>
requires(!S::kDots) struct StepFP8<S> {
    static constexpr DType kType = DType::kFP8;
    static constexpr int64_t kColumns = 1, kXs = 1, kStrips = 1;
    static constexpr int kFetches = 3, kTokens = S::kRegisters == 32 ? 12 : 4;
    static constexpr float kScale = 0x1p8f;
    struct Codes {
        template <int T>
        [[gnu::always_inline]] void Add(const std::byte* codes, const float* x, int64_t x_stride,
                                        Float (&dots)[T]) const {
            Float weights[4];
            S::LoadE4M3(codes, weights);
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 16
                for (int t = 0; t < T; ++t) {
                    dots[t] = S::Fma(weights[k], S::Set(x[t * x_stride + k]), dots[t]);
                }
            }
        }
    };
};

// Rows of activations, and the columns of them that are multiplied.
template <typename Step>
struct Rows {
    explicit Rows(const MatMulArgs& args) {
        if constexpr (Step::kXs < Step::kColumns) {
            data = reinterpret_cast<const float*>(args.quantized);
            stride = weight_tiles::QuantizedActivationBytes(args.weight.cols) / 4;
            cols = (args.weight.cols + 31) / 32 * 32;
        } else {
            data = args.x, stride = args.x_stride, cols = args.weight.cols;
        }
    }
    const float* data = nullptr;
    int64_t stride = 0, cols = 0;
};

// Adds columns of FP8 of S strips times T tokens to `sums`. Each block's products are summed before
// scaling.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddBlocks(const std::byte* w, int64_t strip_bytes,
                                             const float* x, int64_t x_stride, Range cols,
                                             Float (&sums)[S * kParts][T]) {
    constexpr int64_t kBlock = Info(DType::kFP8).block_elements;
    constexpr int64_t kBytes = weight_tiles::BlockBytes(DType::kFP8);
    constexpr int64_t kVector = 4 * Simd::kLanes;  // bytes: four columns of a vector of rows
    const typename Step::Codes step;
    for (int64_t begin = cols.begin, end = 0; begin < cols.end; begin = end) {
        const int64_t first = begin / kBlock * kBlock;
        end = std::min(cols.end, first + kBlock);
        const std::byte* block = w + begin / kBlock * kBytes;
        Float dots[S * kParts][T];
        for (auto& part : dots) std::fill(part, part + T, Simd::Zero());
        for (int64_t k = begin; k < end; k += 4) {
            const std::byte* codes = block + (k - first) * kStripRows;
#pragma GCC unroll 16
            for (int s = 0; T >= Step::kFetches && s < S; ++s) {
                FetchAhead<kParts * kVector>(codes + s * strip_bytes);
            }
#pragma GCC unroll 16
            for (int s = 0; s < S * kParts; ++s) {
                step.template Add<T>(codes + s / kParts * strip_bytes + s % kParts * kVector,
                                     x + k / Step::kColumns, x_stride, dots[s]);
            }
        }
#pragma GCC unroll 16
        for (int s = 0; s < S * kParts; ++s) {
            const auto* scales = reinterpret_cast<const float*>(block + s / kParts * strip_bytes +
                                                                kBlock * kStripRows);
            const Float scale =
                Simd::Mul(Simd::Load(scales + s % kParts * Simd::kLanes), Simd::Set(Step::kScale));
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                sums[s][t] = Simd::Fma(dots[s][t], scale, sums[s][t]);
            }
        }
    }
}

// Adds one step of one strip times T tokens to `sums`; `left` columns remain. A tile of six tokens
// takes 12 of the 16 registers, so that each column loads the weights again: the empty asm keeps
// the compiler from holding them, which would spill a sum.
template <typename Step, int T>
[[gnu::always_inline]] inline void AddStep(const std::byte* w, const float* x, int64_t x_stride,
                                           int64_t left, Float (&sums)[kParts][T]) {
#pragma GCC unroll 2
    for (int col = 0; col < Step::kColumns; ++col) {
        if (col == left) return;
        asm("" : "+r"(w), "+r"(x));
        Float weights[kParts];
#pragma GCC unroll 2
        for (int s = 0; s < kParts; ++s) weights[s] = Step::Column(Step::Load(w, s), col);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const Float each = Simd::Set(x[t * x_stride]);
#pragma GCC unroll 2
            for (int s = 0; s < kParts; ++s) sums[s][t] = Simd::Fma(weights[s], each, sums[s][t]);
        }
        ++x;
    }
}

// Adds columns of S strips times T tokens to `sums`; each row of `sums` is a vector of a strip. w
// and x point to column 0.
template <typename Step, int S, int T>
[[gnu::always_inline]] inline void AddColumns(const std::byte* w, int64_t strip_bytes,
                                              const float* x, int64_t x_stride, Range cols,
                                              Float (&sums)[S * kParts][T]) {
    constexpr int64_t kBytes = Step::kColumns * weight_tiles::BlockBytes(Step::kType);
    const int64_t count = cols.end - cols.begin;
    w += cols.begin * weight_tiles::BlockBytes(Step::kType);
    x += cols.begin / Step::kColumns * Step::kXs;
    for (int64_t k = 0; k < count; k += Step::kColumns, w += kBytes, x += Step::kXs) {
#pragma GCC unroll 16
        for (int s = 0; T >= Step::kFetches && s < S; ++s) FetchAhead<kBytes>(w + s * strip_bytes);
        if constexpr (kSharesBroadcasts && S == 1) {
            AddStep<Step, T>(w, x, x_stride, count - k, sums);
            continue;
        }
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

template <typename Step, int S, int T>
[[gnu::always_inline]] inline void Add(const std::byte* w, int64_t strip_bytes, const float* x,
                                       int64_t x_stride, Range cols, Float (&sums)[S * kParts][T]) {
    if constexpr (Step::kType == DType::kFP8) {
        AddBlocks<Step, S, T>(w, strip_bytes, x, x_stride, cols, sums);
    } else {
        AddColumns<Step, S, T>(w, strip_bytes, x, x_stride, cols, sums);
    }
}

// S strips from `row` on times T tokens from `token` on.
template <typename Step, int S, int T>
void Tile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t strip_bytes = weight_tiles::StripBytes(Step::kType, args.weight.cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> x(args);
    Float sums[S * kParts][T];
    for (auto& part : sums) std::fill(part, part + T, Simd::Zero());
    Add<Step, S, T>(w, strip_bytes, x.data + token * x.stride, x.stride, {0, x.cols}, sums);
    for (int s = 0; s < S * kParts; ++s) {
        for (int t = 0; t < T; ++t) {
            StoreSums(args, row + s * Simd::kLanes, token + t, sums[s][t]);
        }
    }
}

// The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
template <typename Step, int S, int T>
void SegmentedTile(const MatMulArgs& args, int64_t row, int64_t token) {
    const int64_t strip_bytes = weight_tiles::StripBytes(Step::kType, args.weight.cols);
    const std::byte* w = args.weight.data + row / kStripRows * strip_bytes;
    const Rows<Step> all(args);
    const float* x = all.data + token * all.stride;
    Wide wide[S * kParts][T];
    for (auto& part : wide) std::fill(part, part + T, Simd::WideZero());
    Range cols{0, all.cols};
    if (Step::kType == DType::kFP8) cols = {args.UnitsUsed().begin * 32, args.UnitsUsed().end * 32};
    for (int64_t begin = cols.begin; begin < cols.end; begin += args.segment_cols) {
        Float sums[S * kParts][T];
        for (auto& part : sums) std::fill(part, part + T, Simd::Zero());
        const int64_t end = std::min(begin + args.segment_cols, all.cols);
        Add<Step, S, T>(w, strip_bytes, x, all.stride, {begin, end}, sums);
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

template <typename Step, int S, int T>
void Tokens(const MatMulArgs& args, int64_t row, int64_t token, int64_t tokens) {
    if (tokens == T && args.segment_cols != 0) return SegmentedTile<Step, S, T>(args, row, token);
    if (tokens == T) return Tile<Step, S, T>(args, row, token);
    if constexpr (T > 1) Tokens<Step, S, T - 1>(args, row, token, tokens);
}

// Multiplies whole groups of S strips from `row` on by all tokens, in chunks whose activations stay
// in L2; returns the first remaining row.
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

// Many tokens: twelve (or four) of them share a weight. One token: four strips at a time, for four
// independent chains of sums.
template <typename Step>
void Strips(const MatMulArgs& args, Range rows) {
    int64_t row = rows.begin;
    if (args.rows == 1) {
        row = Groups<Step, 4, 1>(args, row, rows.end);
    } else {
        row = Groups<Step, Step::kStrips, Step::kTokens>(args, row, rows.end);
    }
    Groups<Step, 1, Step::kTokens>(args, row, rows.end);
}

}  // namespace

void MatMulFloats(const MatMulArgs& args, Range rows) {
    if (args.weight.dtype == DType::kF32) return Strips<StepF32>(args, rows);
    if (args.weight.dtype == DType::kF16) return Strips<StepF16>(args, rows);
    if (args.weight.dtype == DType::kFP8) return Strips<StepFP8<Simd>>(args, rows);
    WEFT_CHECK(args.weight.dtype == DType::kBF16);
    Strips<StepBF16<Simd>>(args, rows);
}

}  // namespace weft::kernels::WEFT_SET
