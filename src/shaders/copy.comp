// Copies rows and columns from one value to another, of any types:
//     y[r][c] = x[from(r)][c + shift], zero if there is no such element
//     from(r)   kSame: r + first_row;  kListed: list[r] - first_row;  kFound: the index of r in
//               list, which ascends
// kKeeps: an element of y without such an element keeps its value.
// An invocation handles quads of the rows of y.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kMode = 0;
layout(constant_id = 2) const uint kTypes = 0;     // of x, y
layout(constant_id = 3) const bool kWide = false;  // also: rows and `shift` are whole quads
layout(constant_id = 4) const bool kKeeps = false;
layout(push_constant, scalar) uniform Args {
    uint64_t x, y;
    Ints list;
    uint x_rows, x_cols, y_rows, y_cols;
    int shift, first_row;
};
const uint kSame = 0, kListed = 1, kFound = 2;

// The row of x for a row of y; x_rows or more: there is no such row.
uint RowOf(uint r) {
    if (kMode == kSame) return r + uint(first_row);
    if (kMode == kListed) {
        const int row = list.at[r] - first_row;
        return row < 0 ? x_rows : uint(row);
    }
    uint begin = 0, end = x_rows;
    while (begin < end) {
        const uint middle = (begin + end) / 2;
        if (list.at[middle] < int(r)) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin < x_rows && list.at[begin] == int(r) ? begin : x_rows;
}

bool IsInside(uint c) {
    return int(c) + shift >= 0 && uint(int(c) + shift) < x_cols;
}

vec4 QuadOf(uint row, uint c, uint left) {
    const uint64_t begin = uint64_t(row) * x_cols;
    const int at = int(c) + shift;
    vec4 quad = vec4(0);
    if (kWide) {
        if (at < 0 || uint(at) >= x_cols) return quad;
        return LoadQuad(x, TypeIn(kTypes, 0), begin + uint(at), 4, true);
    }
    [[unroll]] for (int k = 0; k < 4; ++k) {
        if (k < left && IsInside(c + k)) quad[k] = Load(x, TypeIn(kTypes, 0), begin + uint(at + k));
    }
    return quad;
}

void main() {
    const uint quads = (y_cols + 3) / 4, all = y_rows * quads;
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < all; i += stride) {
        const uint r = i / quads, c = 4 * (i % quads), row = RowOf(r);
        const vec4 quad = row < x_rows ? QuadOf(row, c, y_cols - c) : vec4(0);
        const uint64_t at = uint64_t(r) * y_cols + c;
        if (!kKeeps || kWide) {
            if (kKeeps && !IsInside(c)) continue;
            StoreQuad(y, TypeIn(kTypes, 1), at, y_cols - c, kWide, quad);
            continue;
        }
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (c + k < y_cols && IsInside(c + k)) Store(y, TypeIn(kTypes, 1), at + k, quad[k]);
        }
    }
}
