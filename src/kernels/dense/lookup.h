// Kernels that move rows and columns: lookups and their gradients, copies, decoding of block types.
//
// The work of a function X is divided into `parts` parts, which threads compute at the same time:
// X(args, part, parts) computes part number `part`. Functions that use row kernels get the table of
// kernels as first argument. A call allocates nothing, takes no lock and keeps no state. Parts
// never write the same bytes, and results do not depend on the number of parts. `scratch` has
// scratch_bytes for each part and is 64-byte aligned; XScratchBytes(args) returns the value for
// scratch_bytes.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::dense {

// y[i] = row (ids[i] - first_row) of a table, or zeros if the table lacks that row because another
// rank holds it. The table is a matrix of any element type, or has a block type. Rows of a block
// type are decoded into y, which then must be float32. With `keys`, rows of the table get noise,
// amplitudes[i] * NoiseAt(keys[i], column) (tensor/noise.h), and y must be float32, too. Used for
// the ops embedding and select_rows.
struct LookupArgs {
    ConstMatrix table;                  // [table_rows, cols]: used if `blocks` is null
    const std::byte* blocks = nullptr;  // rows of block_type, one after another
    DType block_type = DType::kF32;
    int64_t table_rows = 0, first_row = 0;
    const int32_t* ids = nullptr;  // [count]
    int64_t count = 0, cols = 0;
    Matrix y;                           // [count, cols], any type
    const int32_t* keys = nullptr;      // [count], or null
    const float* amplitudes = nullptr;  // [count]
};
void Lookup(const Kernels& kernels, const LookupArgs& args, int part, int parts);

// The gradient of an embedding: row (tokens[i] - first_row) of the table += dy[i]. Tokens outside
// the table are skipped. The rows of dy that have the same token are added in float32, in ascending
// order. Their sum is then added to the token's row of the table, so each row of the table is
// rounded once. The distinct tokens are divided among the parts.
struct EmbeddingGradArgs {
    ConstMatrix dy;                   // [count, cols], any type
    const int32_t* tokens = nullptr;  // [count]
    const int32_t* order = nullptr;   // [count]: row numbers by ascending token, then by row
    int64_t count = 0, cols = 0;
    int64_t table_rows = 0, first_row = 0;
    Matrix table;  // [table_rows, cols], any type
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t EmbeddingGradScratchBytes(const EmbeddingGradArgs& args);
void EmbeddingGrad(const Kernels& kernels, const EmbeddingGradArgs& args, int part, int parts);

// The gradient of select_rows: y[ids[i]] = x[i]; the other rows of y are zeros. ids must ascend,
// without repeats, and be below `rows`.
struct ScatterRowsArgs {
    ConstMatrix x;                 // [count, cols], any type
    const int32_t* ids = nullptr;  // [count]
    int64_t count = 0, rows = 0, cols = 0;
    Matrix y;  // [rows, cols], any type
};
void ScatterRows(const Kernels& kernels, const ScatterRowsArgs& args, int part, int parts);

// y[r, y_begin + c] = x[r, x_begin + c] for c < cols; the other columns of y are zeros. Used for
// the ops slice_columns, pad_columns and slice_rows (for which x begins at the first row of the
// slice), and for plain copies.
struct CopyColumnsArgs {
    ConstMatrix x;  // [rows, >= x_begin + cols], any type
    int64_t x_begin = 0, y_begin = 0;
    int64_t rows = 0, cols = 0, y_cols = 0;
    Matrix y;  // [rows, y_cols], any type
};
void CopyColumns(const Kernels& kernels, const CopyColumnsArgs& args, int part, int parts);

// y = x: decodes rows of a block type to y's type. The rows belong to `matrices` matrices of
// matrix_rows rows each, for example one matrix per expert. If `begin` (ExpertPlan::begin) is not
// null, only the matrices of experts that have rows are decoded: matrix m is decoded if begin[m] <
// begin[m + 1]. Scratch memory is used if y is not float32.
struct DecodeArgs {
    DType dtype = DType::kF32;
    const std::byte* x = nullptr;  // [matrices * matrix_rows] rows, one after another
    int64_t matrices = 1, matrix_rows = 0, cols = 0;
    const int32_t* begin = nullptr;  // [matrices + 1] or null
    Matrix y;                        // [matrices * matrix_rows, cols], any type
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t DecodeScratchBytes(const DecodeArgs& args);
void Decode(const Kernels& kernels, const DecodeArgs& args, int part, int parts);

// Sets y to zeros.
struct FillArgs {
    std::byte* y = nullptr;
    int64_t bytes = 0;
};
void Fill(const FillArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
