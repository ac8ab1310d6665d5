// LoRA adapters beside a product: y += (x . a^T) . b^T in the rows that use an adapter, with a
// [r, k] and b [n, r]. Two kernels, between which the team meets: down, then up.
//
// As in kernels.h: (args, part, parts), no allocation, and a row's bits do not depend on the other
// rows, on their adapters or on `parts`. Rows without an adapter are not touched.
// Activations stay float32, whatever the adapter's type; sums are float32, and with segments (a
// product whose columns may be cut over ranks) float64 from a segment on: a cut hardly shows.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

// Of one product: A and B of an adapter, F32 or BF16, in strips of 16 rows: [strip][col][16].
struct AdapterPair {
    int32_t adapter = 0;
    PackedMatrix a, b;
};

// Bytes of a packed [rows, cols], and packing, as Kernels::pack.
int64_t AdapterBytes(DType dtype, int64_t rows, int64_t cols);
void PackAdapter(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes);

// Rows of a step, each with an adapter of its own. Those of one adapter stand together.
struct AdaptedRow {
    int32_t row = 0;
    int32_t adapter = 0;
};

// u = x . a^T, for those rows whose adapter is among the pairs.
struct AdaptDownArgs {
    std::span<const AdapterPair> pairs;  // by adapter, ascending
    std::span<const AdaptedRow> rows;
    const float* x = nullptr;
    int64_t x_stride = 0;
    int64_t segment_cols = 0;  // not 0: sums of so many columns are added up in float64
    float* u = nullptr;        // [row of the step, u_stride]
    double* wide_u = nullptr;  // instead of u, with segments
    int64_t u_stride = 0;      // the largest rank, rounded up to a strip
};

// y += u . b^T for those rows. With `wide`, wide += u . b^T; with both, y becomes what wide then
// is, rounded, in all of the step's rows.
struct AdaptUpArgs {
    std::span<const AdapterPair> pairs;
    std::span<const AdaptedRow> rows;
    const float* u = nullptr;
    const double* wide_u = nullptr;
    int64_t u_stride = 0;
    float* y = nullptr;  // [row of the step, y_stride]
    double* wide = nullptr;
    int64_t y_stride = 0;  // of both
    int64_t cols = 0;      // rows of b
    int64_t all_rows = 0;  // of the step
};

struct AdaptKernels {
    Kernel<AdaptDownArgs> adapt_down = nullptr;
    Kernel<AdaptUpArgs> adapt_up = nullptr;
};

// What the levels share: rows that are worked on together, of one pair.
struct AdaptBlock {
    const AdapterPair* pair = nullptr;
    std::span<const AdaptedRow> rows;
};
// The block that begins with rows[0] (at most `most` rows), which leaves `rows`. A block whose
// adapter has no pair here has none.
AdaptBlock NextBlock(std::span<const AdapterPair> pairs, size_t most,
                     std::span<const AdaptedRow>& rows);

}  // namespace weft::kernels
