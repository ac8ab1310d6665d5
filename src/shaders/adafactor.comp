//: adafactor_rows -DROWS
//: adafactor_columns -DCOLUMNS
//: adafactor_columns_end -DCOLUMNS_END
//: adafactor_moments -DMOMENTS
//: adafactor_update -DUPDATE
// Adafactor (Shazeer and Stern 2018; program/update.h) over a block of a tensor. A tensor is a
// stack of matrices of `matrix_rows` rows, and a block is a range of the tensor's rows.
#version 460
#include "element.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // types of gradient, copy

struct Block {
    uint row;             // row of the tensor at which the block starts
    uint rows, cols;      // of the block, whose first row starts at column `skipped`
    uint skipped, count;  // count: number of elements
    uint matrix_rows, tensor_cols;
};

#if defined(ROWS) || defined(COLUMNS) || defined(UPDATE)
// Index of element (r, c) of a block, whose elements are contiguous. A result of b.count or more
// means that the block lacks the element.
uint ElementOf(Block b, uint r, uint c) {
    return r == 0 && c < b.skipped ? b.count : r * b.cols + c - b.skipped;
}
// Offset of the column statistics for the block's row r.
uint MatrixBegin(Block b, uint r) {
    return ((b.row + r) / b.matrix_rows - b.row / b.matrix_rows) * b.tensor_cols;
}
#endif

#ifdef ROWS
// Adds each row's squares of gradients to to[row]. kSizes: writes each row's sum of squares of
// updates (gradients times their factors), as pairs.
layout(constant_id = 2) const bool kSizes = false;
layout(push_constant, scalar) uniform Args {
    uint64_t gradient;
    Floats gradient_scale, inverse_rows, inverse_cols, to;  // inverse_rows: may be 0
    Block block;
};

void Row(uint r) {
    const uint begin = kSizes ? MatrixBegin(block, r) : 0;
    float own = 0;
    for (uint c = gl_LocalInvocationIndex; c < block.cols; c += gl_WorkGroupSize.x) {
        const uint at = ElementOf(block, r, c);
        if (at >= block.count) continue;
        float g = gradient_scale.at[0] * Load(gradient, TypeIn(kTypes, 0), at);
        if (kSizes) g *= inverse_cols.at[begin + c];
        own = fma(g, g, own);
    }
    const float all = SumOfGroup(own);
    if (gl_LocalInvocationIndex != 0) return;
    if (kSizes) {
        const float scale = uint64_t(inverse_rows) == 0 ? 1.0 : inverse_rows.at[r];
        to.at[2 * r] = all * scale * scale;
        to.at[2 * r + 1] = 0;
    } else {
        to.at[r] += all;
    }
}
void main() {
    for (uint r = gl_WorkGroupID.x; r < block.rows; r += gl_NumWorkGroups.x) Row(r);
}
#endif

#ifdef COLUMNS
// Sums of squares of each column, for blocks of `turn` rows of each matrix: sums [matrices, pieces,
// cols]. Workgroup (columns, piece, matrix).
layout(push_constant, scalar) uniform Args {
    uint64_t gradient;
    Floats gradient_scale, sums;
    Block block;
    uint turn;
};
void main() {
    const uint c = gl_GlobalInvocationID.x;
    if (c >= block.cols) return;
    // The matrix's rows in the block, and then the rows of this piece.
    const uint matrix = block.row / block.matrix_rows + gl_WorkGroupID.z;
    const uint first = max(matrix * block.matrix_rows, block.row) - block.row;
    const uint last = min(min((matrix + 1) * block.matrix_rows, block.row + block.rows) - block.row,
                          first + (gl_WorkGroupID.y + 1) * turn);
    float sum = 0;
    for (uint r = first + gl_WorkGroupID.y * turn; r < last; ++r) {
        const uint at = ElementOf(block, r, c);
        if (at >= block.count) continue;
        const float g = gradient_scale.at[0] * Load(gradient, TypeIn(kTypes, 0), at);
        sum = fma(g, g, sum);
    }
    const uint piece = gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    sums.at[piece * block.cols + c] = sum;
}
#endif

#ifdef COLUMNS_END
// Adds the pieces to to[matrix][c], in order. Workgroup (columns, matrix).
layout(push_constant, scalar) uniform Args {
    Floats sums, to;
    uint pieces, cols, tensor_cols;
};
void main() {
    const uint c = gl_GlobalInvocationID.x, matrix = gl_WorkGroupID.y;
    if (c >= cols) return;
    float sum = 0;
    for (uint p = 0; p < pieces; ++p) sum += sums.at[(matrix * pieces + p) * cols + c];
    to.at[matrix * tensor_cols + c] += sum;
}
#endif

#ifdef MOMENTS
// For one matrix per workgroup at a time: updates the mean squares of rows and columns, and
// computes the factors of gradients.
layout(push_constant, scalar) uniform Args {
    Floats sums, moments, inverse, new_part;  // new_part: weight of a new mean
    uint rows_at, cols_at;
    uint rows, cols, matrices;  // of one matrix; rows: 0 for a vector
    float eps_square;
};
float Update(uint at, float count) {
    const float part = new_part.at[0], mean = sums.at[at] / count + eps_square;
    const float moment = (1.0 - part) * moments.at[at] + part * mean;
    moments.at[at] = moment;
    return moment;
}
void Matrix(uint matrix) {
    const uint first_row = rows_at + matrix * rows, first_col = cols_at + matrix * cols;
    float own = 0;
    for (uint r = gl_LocalInvocationIndex; r < rows; r += gl_WorkGroupSize.x) {
        own += Update(first_row + r, float(cols));
    }
    const float mean = SumOfGroup(own) / float(rows);
    for (uint r = gl_LocalInvocationIndex; r < rows; r += gl_WorkGroupSize.x) {
        inverse.at[first_row + r] = 1.0 / sqrt(moments.at[first_row + r] / mean);
    }
    for (uint c = gl_LocalInvocationIndex; c < cols; c += gl_WorkGroupSize.x) {
        inverse.at[first_col + c] = 1.0 / sqrt(Update(first_col + c, float(max(rows, 1))));
    }
}
void main() {
    for (uint m = gl_WorkGroupID.x; m < matrices; m += gl_NumWorkGroups.x) Matrix(m);
}
#endif

#ifdef UPDATE
// p = p * (1 - decay * rate) - g * inverses * rate / max(1, rms(update) / clip). Workgroup (rows,
// piece of a row).
layout(constant_id = 2) const bool kScales = false;  // multiply the rate by rms(weights)
layout(constant_id = 3) const bool kRelative = false;  // `rate` is 1 / sqrt(number)
layout(push_constant, scalar) uniform Args {
    uint64_t gradient, weights, copy;  // copy: may be 0
    Floats gradient_scale, rate, inverse_rows, inverse_cols;  // inverse_rows: may be 0
    Floats weight_squares, update_squares;
    Block block;
    float elements, eps_scale, clip, decay;
};
void main() {
    const uint c = gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (c >= block.cols) return;
    float whole = kRelative ? min(1e-2, rate.at[0]) : rate.at[0];
    if (kScales) whole *= max(eps_scale, sqrt(weight_squares.at[0] / elements));
    const float size = sqrt(update_squares.at[0] / elements);
    const float clipped = whole / max(1.0, size / clip), kept = 1.0 - decay * whole;
    for (uint r = gl_WorkGroupID.x; r < block.rows; r += gl_NumWorkGroups.x) {
        const uint at = ElementOf(block, r, c);
        if (at >= block.count) continue;
        const float g = gradient_scale.at[0] * Load(gradient, TypeIn(kTypes, 0), at);
        const float scale = uint64_t(inverse_rows) == 0 ? clipped : clipped * inverse_rows.at[r];
        const float change = g * inverse_cols.at[MatrixBegin(block, r) + c] * scale;
        const float p = Load(weights, kF32, at) * kept - change;
        Store(weights, kF32, at, p);
        if (copy != 0) Store(copy, TypeIn(kTypes, 1), at, p);
    }
}
#endif
