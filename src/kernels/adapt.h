// LoRA adapters on a matrix product: y += (x . a^T) . b^T in the rows that use an adapter, with a
// [r, k] and b [n, r]. There are two kernels, down and up; all threads must finish down before up
// begins.
//
// As in kernels.h, kernels take (args, part, parts) and allocate nothing, and a row's bits do not
// depend on the other rows, on their adapters or on `parts`. Rows without an adapter are not
// touched.
// Activations and sums are float32 for adapters of any type. For a product whose columns may be
// divided over ranks, the columns form segments: the float32 sum of each segment is added in
// float64, so that results barely depend on the division.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

// The matrices A and B of one adapter for one product, F32 or BF16, packed in strips of 16 rows:
// [strip][col][16].
struct AdapterPair {
    int32_t adapter = 0;
    PackedMatrix a, b;
};

// AdapterBytes returns the size of a packed [rows, cols] matrix; PackAdapter packs it, as
// Kernels::pack does.
int64_t AdapterBytes(DType dtype, int64_t rows, int64_t cols);
void PackAdapter(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes);

// A row of a step and its adapter. Rows with the same adapter are adjacent.
struct AdaptedRow {
    int32_t row = 0;
    int32_t adapter = 0;
};

// u = x . a^T, for rows whose adapter is in `pairs`.
struct AdaptDownArgs {
    std::span<const AdapterPair> pairs;  // ascending by adapter
    std::span<const AdaptedRow> rows;
    const float* x = nullptr;
    int64_t x_stride = 0;
    int64_t segment_cols = 0;  // not 0: float32 sums over this many columns are added up in float64
    float* u = nullptr;        // [row of the step, u_stride]
    double* wide_u = nullptr;  // used instead of u if segment_cols is not 0
    int64_t u_stride = 0;      // the largest rank, rounded up to a strip
};

// For rows whose adapter is in `pairs`: y += u . b^T if `wide` is null, else wide += u . b^T. If
// both y and wide are set, then y = wide, rounded, in all rows of the step.
struct AdaptUpArgs {
    std::span<const AdapterPair> pairs;
    std::span<const AdaptedRow> rows;
    const float* u = nullptr;
    const double* wide_u = nullptr;
    int64_t u_stride = 0;
    float* y = nullptr;  // [row of the step, y_stride]
    double* wide = nullptr;
    int64_t y_stride = 0;  // stride of y and wide
    int64_t cols = 0;      // number of rows of b
    int64_t all_rows = 0;  // number of rows of the step
};

struct AdaptKernels {
    Kernel<AdaptDownArgs> adapt_down = nullptr;
    Kernel<AdaptUpArgs> adapt_up = nullptr;
};

// Helpers for the kernels of all CPU levels. A block is a sequence of rows with the same adapter,
// which are computed together.
struct AdaptBlock {
    const AdapterPair* pair = nullptr;
    std::span<const AdaptedRow> rows;
};
// Removes the next block (at most `most` rows) from the front of `rows`. The block's `pair` is null
// if `pairs` has no pair for the adapter.
AdaptBlock NextBlock(std::span<const AdapterPair> pairs, size_t most,
                     std::span<const AdaptedRow>& rows);

}  // namespace weft::kernels
