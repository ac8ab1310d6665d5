// Adds the sum of a token's rows of dy to dtable[token - first_row], in order, rounded once.
// `order` lists the rows of dy by token, ascending among equal tokens. A workgroup (place in the
// list, columns) handles a token if the token's first row is at its place.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of dy, dtable
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t dy, dtable;
    Ints tokens, order;
    uint rows, cols, table_rows;
    int first_row;
};
const uint kTurn = 4096;  // rows per loop

int TokenAt(uint place) {
    return tokens.at[order.at[place]];
}

// Sums rows from `place` on, and advances it past them.
vec4 SumOfRows(inout uint place, int token, uint c) {
    precise vec4 sum = vec4(0);
    for (uint begin = place; begin < rows && TokenAt(begin) == token; begin = place) {
        const uint end = min(begin + kTurn, rows);
        for (place = begin; place < end && TokenAt(place) == token; ++place) {
            const uint64_t at = uint64_t(order.at[place]) * cols + c;
            sum = sum + LoadQuad(dy, TypeIn(kTypes, 0), at, cols - c, kWide);
        }
    }
    return sum;
}

void main() {
    const uint c = 4 * (gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex);
    if (c >= cols) return;
    for (uint first = gl_WorkGroupID.x; first < rows; first += gl_NumWorkGroups.x) {
        const int token = TokenAt(first), row = token - first_row;
        if (row < 0 || uint(row) >= table_rows) continue;
        if (first > 0 && TokenAt(first - 1) == token) continue;
        uint place = first;
        const vec4 sum = SumOfRows(place, token, c);
        const uint64_t at = uint64_t(row) * cols + c;
        const uint type = TypeIn(kTypes, 1);
        const vec4 before = LoadQuad(dtable, type, at, cols - c, kWide);
        StoreQuad(dtable, type, at, cols - c, kWide, before + sum);
    }
}
