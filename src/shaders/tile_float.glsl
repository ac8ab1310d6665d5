// Part of tile.comp: products of floats.
#include "tile_sums.glsl"

uint64_t XStride() { return uint64_t(a.cols) * 4; }

shared vec4 weights[kDeep * (kWide / 4 + 1)];
shared vec4 columns[kDeep * (kTile / 4 + 1)];

// Loads columns [begin, begin + kDeep) of rows [first, ...) of the matrix that begins with row
// `head`.
void LoadWeights(uint head, uint first, uint begin, uint lane) {
    const uint each = kDeep / UNIT;
    const uint units = (a.cols + UNIT - 1) / UNIT;
    for (uint job = lane; job < kWide * each; job += kSize) {
        const uint row = job / each, unit = begin / UNIT + job % each;
        vec4 w[QUADS];
        if (unit < units) {
            WeightRow at;
            [[unroll]] for (int p = 0; p < 4; ++p) {
                at.plane[p] = a.plane[p] +
                              uint64_t(head + min(first + row, a.n - 1)) * a.row_units[p] * 16;
            }
            Decode(at, unit, w);
        } else {
            [[unroll]] for (uint j = 0; j < QUADS; ++j) w[j] = vec4(0);
        }
        [[unroll]] for (uint i = 0; i < UNIT; ++i) {
            const uint column = job % each * UNIT + i;
            weights[column * (kWide / 4 + 1) + row / 4][row % 4] = w[i / 4][i % 4];
        }
    }
}

void LoadColumns(uint64_t x, uint64_t x_stride, uint count, uint begin, uint lane) {
    for (uint job = lane; job < kTile * kDeep / 4; job += kSize) {
        const uint row = job % kTile, four = job / kTile;
        const uint column = begin + 4 * four;
        const uint64_t at = RowOfX(x, x_stride, row);
        vec4 value = vec4(0);
        if (row < count && column < a.cols) {
            if (kWhole) {
                value = Floats4(at).at[column >> 2];
            } else {
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    if (column + i < a.cols) value[i] = Floats(at).at[column + i];
                }
            }
        }
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            columns[(4 * four + i) * (kTile / 4 + 1) + row / 4][row % 4] = value[i];
        }
    }
}

// sums += products of the loaded columns.
void AddProducts(uint lane, inout Sums sums) {
    const uint across = Across(lane), down = Down(lane);
    for (uint k = 0; k < kDeep; ++k) {
        const vec4 w = weights[k * (kWide / 4 + 1) + across];
        const uint at = k * (kTile / 4 + 1) + down / 4;
        if (kRowsEach == 2) {
            const vec2 x2 = (down & 2) != 0 ? columns[at].zw : columns[at].xy;
            sums.of[0] = fma(w, x2.xxxx, sums.of[0]);
            sums.of[kRowsEach - 1] = fma(w, x2.yyyy, sums.of[kRowsEach - 1]);
            continue;
        }
        [[unroll]] for (uint i = 0; i < kRowsEach; i += 4) {
            const vec4 x4 = columns[at + i / 4];
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                sums.of[(i + j) % kRowsEach] = fma(w, vec4(x4[j]), sums.of[(i + j) % kRowsEach]);
            }
        }
    }
}
