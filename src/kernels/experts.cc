#include "kernels/experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/share_strips.h"

namespace weft::kernels {
namespace {

// Rows of a group that are not contiguous are gathered first: as many as fit L2, in whole tiles.
constexpr int64_t kGatherBytes = 384 * 1024;
constexpr int64_t kTile = 12;
constexpr int64_t kMostGathered = 96;
// ExpertSum: number of sums that are weighted together.
constexpr int64_t kSumTokens = 96;
constexpr int64_t kSumRows = 256;
// Reading a strip of weights takes about as long as multiplying it by this many rows.
constexpr Strips kStrips{kStripRows, 6};

constexpr int64_t AlignUp(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

constexpr int64_t GatheredRows(int64_t row_bytes) {
    return std::clamp(kGatherBytes / row_bytes / kTile * kTile, kTile, kMostGathered);
}

// Rows [begin, end) of a packed matrix; begin is a multiple of kStripRows.
PackedMatrix RowsOf(const Kernels& kernels, PackedMatrix matrix, Range rows) {
    matrix.data += kernels.packed_bytes(matrix.dtype, rows.begin, matrix.cols);
    matrix.rows = rows.end - rows.begin;
    return matrix;
}

// The left operand: plain rows or prepared ones.
struct Rows {
    const float* x = nullptr;
    const std::byte* quantized = nullptr;
    int64_t stride_bytes = 0, row_bytes = 0;

    Rows(const Kernels& kernels, const float* plain, int64_t x_stride, const std::byte* ready,
         int64_t cols)
        : x(plain), quantized(ready) {
        row_bytes = ready != nullptr ? kernels.quantized_bytes(cols) : cols * int64_t{4};
        stride_bytes = ready != nullptr ? row_bytes : x_stride * 4;
    }
    const std::byte* At(int64_t row) const {
        const auto* base = quantized != nullptr ? quantized : reinterpret_cast<const std::byte*>(x);
        return base + row * stride_bytes;
    }
    // Makes the rows from `first` on the operand of a matmul.
    void SetIn(MatMulArgs& args, const std::byte* first, int64_t stride) const {
        if (quantized != nullptr) {
            args.quantized = first;
        } else {
            args.x = reinterpret_cast<const float*>(first);
            args.x_stride = stride / 4;
        }
    }
};

// Calls with(first row, MatMulArgs) for pieces of `count` rows, row i of which is source(i).
template <typename Source, typename With>
void ForGathered(const Rows& x, int64_t count, const Source& source, std::byte* scratch,
                 const With& with) {
    const int64_t piece = count == 1 ? 1 : GatheredRows(x.row_bytes);
    for (int64_t begin = 0; begin < count; begin += piece) {
        MatMulArgs args;
        args.rows = std::min(piece, count - begin);
        if (args.rows == 1) {
            x.SetIn(args, x.At(source(begin)), x.stride_bytes);
        } else {
            for (int64_t i = 0; i < args.rows; ++i) {
                std::memcpy(scratch + i * x.row_bytes, x.At(source(begin + i)),
                            static_cast<size_t>(x.row_bytes));
            }
            x.SetIn(args, scratch, x.row_bytes);
        }
        with(begin, args);
    }
}

}  // namespace

int64_t StackStride(const Kernels& kernels, DType dtype, int64_t rows, int64_t cols) {
    return AlignUp(kernels.packed_bytes(dtype, rows, cols));
}

int64_t GroupScratchBytes(const Kernels& kernels, int64_t cols) {
    int64_t bytes = kSumTokens * kSumRows * static_cast<int64_t>(sizeof(double));
    for (const int64_t row_bytes : {kernels.quantized_bytes(cols), cols * int64_t{4}}) {
        bytes = std::max(bytes, GatheredRows(row_bytes) * row_bytes);
    }
    return AlignUp(bytes);
}

void ExpertMatMul(const Kernels& kernels, const ExpertMatMulArgs& args, int part, int parts) {
    const int32_t* begin = args.plan.begin;
    const Rows x(kernels, args.x, args.x_stride, args.quantized, args.weight.cols);
    std::byte* scratch = args.scratch + part * args.scratch_bytes;
    const auto count = [&](int64_t e) { return int64_t{begin[e + 1]} - begin[e]; };
    ShareStrips(kStrips, args.weight.count, args.weight.rows, count, part, parts,
                [&](int64_t e, Range rows) {
                    const auto multiply = [&](int64_t row, MatMulArgs& m) {
                        m.weight = RowsOf(kernels, args.weight.Matrix(e), rows);
                        if (args.bias != nullptr)
                            m.bias = args.bias + e * args.weight.rows + rows.begin;
                        m.y = args.y + (begin[e] + row) * args.y_stride + rows.begin;
                        m.y_stride = args.y_stride;
                        kernels.matmul(m, 0, 1);
                    };
                    if (args.by_token) {
                        const auto token = [&](int64_t i) {
                            return args.plan.slots[begin[e] + i] / args.used;
                        };
                        ForGathered(x, count(e), token, scratch, multiply);
                    } else {
                        MatMulArgs m;
                        m.rows = count(e);
                        x.SetIn(m, x.At(begin[e]), x.stride_bytes);
                        multiply(0, m);
                    }
                });
}

namespace {

// Adds rows [begin, begin + count) of the plan, all of expert e, to the sums of their tokens, in
// columns `rows` of the output.
void AddExpert(const Kernels& kernels, const ExpertSumArgs& args, int64_t e, int64_t begin,
               int64_t count, Range rows, std::byte* scratch) {
    const Rows x(kernels, args.x, args.x_stride, args.quantized, args.weight.cols);
    const int64_t cols = rows.end - rows.begin;
    MatMulArgs m;
    m.weight = RowsOf(kernels, args.weight.Matrix(e), rows);
    m.rows = count;
    m.segment_cols = args.segment_cols;
    m.x_used = args.x_used;
    m.y_stride = cols;
    const bool wide = args.segment_cols != 0;
    auto* doubles = reinterpret_cast<double*>(scratch);
    auto* floats = reinterpret_cast<float*>(scratch);
    if (wide) {
        m.wide = doubles;
    } else {
        m.y = floats;
    }
    x.SetIn(m, x.At(begin), x.stride_bytes);
    kernels.matmul(m, 0, 1);
    const float* bias =
        args.bias != nullptr ? args.bias + e * args.weight.rows + rows.begin : nullptr;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = args.plan.slots[begin + i];
        const double weight = args.weights[slot];
        double* sum = args.wide + slot / args.used * args.weight.rows + rows.begin;
        if (wide) {
            for (int64_t c = 0; c < cols; ++c) sum[c] += weight * doubles[i * cols + c];
        } else {
            for (int64_t c = 0; c < cols; ++c) sum[c] += weight * double{floats[i * cols + c]};
        }
        for (int64_t c = 0; bias != nullptr && c < cols; ++c) sum[c] += weight * double{bias[c]};
    }
}

// Initializes columns `rows` of the output.
void StartSums(const ExpertSumArgs& args, Range rows) {
    const int64_t stride = args.weight.rows;
    for (int64_t t = 0; t < args.rows; ++t) {
        for (int64_t c = t * stride + rows.begin; c < t * stride + rows.end; ++c) {
            args.wide[c] = args.base != nullptr        ? double{args.base[c]}
                           : args.wide_base != nullptr ? args.wide_base[c]
                                                       : 0.0;
        }
    }
}

}  // namespace

// Each part computes its own columns of the output, with all experts' rows of weights for them. So
// no two parts add to the same sum, and a token's sum is in the order of experts.
void ExpertSum(const Kernels& kernels, const ExpertSumArgs& args, int part, int parts) {
    const Range mine = Share(args.weight.rows, kStripRows, part, parts);
    std::byte* scratch = args.scratch + part * args.scratch_bytes;
    const int32_t* begin = args.plan.begin;
    StartSums(args, mine);
    for (int64_t e = 0; e < args.weight.count; ++e) {
        for (int64_t row = mine.begin; row < mine.end; row += kSumRows) {
            const Range rows{row, std::min(row + kSumRows, mine.end)};
            for (int64_t i = begin[e]; i < begin[e + 1]; i += kSumTokens) {
                const int64_t count = std::min<int64_t>(kSumTokens, begin[e + 1] - i);
                AddExpert(kernels, args, e, i, count, rows, scratch);
            }
        }
    }
    if (args.y == nullptr) return;
    for (int64_t t = 0; t < args.rows; ++t) {
        for (int64_t c = t * args.weight.rows + mine.begin; c < t * args.weight.rows + mine.end;
             ++c) {
            args.y[c] = static_cast<float>(args.wide[c]);
        }
    }
}

void HeadMatMul(const Kernels& kernels, const HeadMatMulArgs& args, int part, int parts) {
    const int64_t heads = args.weight.count;
    const Rows x(kernels, args.x, args.weight.cols, args.quantized, args.weight.cols);
    std::byte* scratch = args.scratch + part * args.scratch_bytes;
    const auto count = [&](int64_t) { return args.rows; };
    const auto multiply = [&](int64_t head, Range rows) {
        const auto source = [&](int64_t token) { return token * heads + head; };
        ForGathered(x, args.rows, source, scratch, [&](int64_t token, MatMulArgs& m) {
            m.weight = RowsOf(kernels, args.weight.Matrix(head), rows);
            m.y_stride = heads * args.weight.rows;
            m.y = args.y + token * m.y_stride + head * args.weight.rows + rows.begin;
            kernels.matmul(m, 0, 1);
        });
    };
    ShareStrips(kStrips, heads, args.weight.rows, count, part, parts, multiply);
}

}  // namespace weft::kernels
