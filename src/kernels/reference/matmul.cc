#include "kernels/reference/matmul.h"

#include <algorithm>
#include <cstring>

#include "tensor/quant.h"

namespace weft::kernels::reference {
namespace {

constexpr int64_t kChunk = 256;  // columns dequantized at a time: a whole block of every type
constexpr int kLanes = 16;       // partial sums of one dot product
constexpr int64_t kTokens = 16;  // tokens that share a dequantized chunk

struct Sums {
    float lane[kLanes] = {};
};

// sums += a * b, element i into lane i % kLanes.
void Accumulate(const float* a, const float* b, int64_t count, Sums& sums) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) sums.lane[lane] += a[i + lane] * b[i + lane];
    }
    for (int lane = 0; i < count; ++i, ++lane) sums.lane[lane] += a[i] * b[i];
}

float Total(const Sums& sums) {
    float total = 0;
    for (float lane : sums.lane) total += lane;
    return total;
}

std::span<const std::byte> RowOf(const PackedMatrix& weight, int64_t row) {
    const int64_t stride = RowBytes(weight.dtype, weight.cols);
    return {weight.data + row * stride, static_cast<size_t>(stride)};
}

// y[t][row] for `tokens` (at most kTokens) rows of x, for one row of the weight.
void RowTimesTokens(const MatMulArgs& args, int64_t row, int64_t token_begin, int64_t tokens) {
    const std::span<const std::byte> source = RowOf(args.weight, row);
    float chunk[kChunk];
    Sums sums[kTokens];
    for (int64_t begin = 0; begin < args.weight.cols; begin += kChunk) {
        const int64_t count = std::min(kChunk, args.weight.cols - begin);
        DequantizeRow(args.weight.dtype,
                      source.subspan(static_cast<size_t>(RowBytes(args.weight.dtype, begin))),
                      {chunk, static_cast<size_t>(count)});
        for (int64_t t = 0; t < tokens; ++t) {
            const float* x = args.x + (token_begin + t) * args.x_stride + begin;
            Accumulate(chunk, x, count, sums[t]);
        }
    }
    const float bias = args.bias != nullptr ? args.bias[row] : 0.0f;
    for (int64_t t = 0; t < tokens; ++t) {
        const int64_t at = (token_begin + t) * args.y_stride + row;
        if (args.wide != nullptr) {
            args.wide[at] = Total(sums[t]) + bias;
        } else {
            args.y[at] = Total(sums[t]) + bias;
        }
    }
}

}  // namespace

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
    const int64_t padded = (rows + kStripRows - 1) / kStripRows * kStripRows;
    return padded * RowBytes(dtype, cols);
}

void Pack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, const std::byte* source,
          int64_t source_stride_bytes) {
    const int64_t bytes = RowBytes(matrix.dtype, matrix.cols);
    for (int64_t i = 0; i < count; ++i) {
        std::memcpy(matrix.data + (row_begin + i) * bytes, source + i * source_stride_bytes,
                    static_cast<size_t>(bytes));
    }
    if (row_begin + count != matrix.rows) return;
    const int64_t end = PackedBytes(matrix.dtype, matrix.rows, matrix.cols);
    std::memset(matrix.data + matrix.rows * bytes, 0,
                static_cast<size_t>(end - matrix.rows * bytes));
}

int64_t QuantizedActivationBytes(int64_t) {
    return 64;
}

void QuantizeActivations(const QuantizeActivationsArgs&, int, int) {}

void MatMul(const MatMulArgs& args, int part, int parts) {
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t t = 0; t < args.rows; t += kTokens) {
            RowTimesTokens(args, row, t, std::min(kTokens, args.rows - t));
        }
    }
}

void Embedding(const EmbeddingArgs& args, int part, int parts) {
    const Range share = Share(args.count, 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t row = args.tokens[i] - args.first_row;
        const std::span<float> y(args.y + i * args.y_stride, static_cast<size_t>(args.weight.cols));
        if (row < 0 || row >= args.weight.rows) {
            std::ranges::fill(y, 0.0f);
        } else {
            DequantizeRow(args.weight.dtype, RowOf(args.weight, row), y);
        }
    }
}

}  // namespace weft::kernels::reference
