// Part of tile.comp: products of int8. x is an address within the codes of x.
#include "dot.glsl"
#include "tile_sums.glsl"

uint64_t XStride() { return uint64_t(a.cols); }

// Words of four codes, with four rows adjacent, and the scales and offsets of the rows.
const uint kWords = kDeep / 4;
const uint kWideFours = kWide / 4, kTileFours = kTile / 4;
shared uvec4 weights[kWords * (kWideFours + 1)];
shared uvec4 columns[kWords * (kTileFours + 1)];
shared vec4 weight_scales[PARTS * kWideFours];
#if OFFSETS == 1
shared vec4 weight_offsets[PARTS * kWideFours];
#endif
shared ivec4 weight_zeros[kWideFours];
shared float column_scales[kTile];
shared ivec2 column_sums[kTile];

// Loads columns [begin, begin + kDeep) of rows [first, ...) of the matrix that begins with row
// `head`.
void LoadWeights(uint head, uint first, uint begin, uint lane) {
    const uint each = kDeep / UNIT;
    for (uint job = lane; job < kWide * each; job += kSize) {
        const uint row = job / each, part = job % each, unit = begin / UNIT + part;
        WeightRow at;
        [[unroll]] for (int p = 0; p < 4; ++p) {
            at.plane[p] =
                a.plane[p] + uint64_t(head + min(first + row, a.n - 1)) * a.row_units[p] * 16;
        }
        uint codes[QUADS];
        SignedCodes(at, unit, codes);
        [[unroll]] for (uint j = 0; j < QUADS; ++j) {
            weights[(part * QUADS + j) * (kWideFours + 1) + row / 4][row % 4] = codes[j];
        }
        if (part != 0) continue;
        const Scales s = ScalesOf(at, unit);
        [[unroll]] for (uint p = 0; p < PARTS; ++p) {
            weight_scales[p * kWideFours + row / 4][row % 4] = s.scale[p];
#if OFFSETS == 1
            weight_offsets[p * kWideFours + row / 4][row % 4] = s.offset[p];
#endif
        }
        weight_zeros[row / 4][row % 4] = SignedZero(at, unit);
    }
}

void LoadColumns(uint64_t x, uint64_t x_stride, uint count, uint begin, uint lane) {
    const uint64_t scales = a.x + uint64_t(a.scales_at) * 256;
    for (uint job = lane; job < kTile * 2; job += kSize) {
        const uint row = job % kTile, side = job / kTile;
        const uint64_t at = RowOfX(x, x_stride, row) + begin;
        uvec4 codes = uvec4(0);
        uvec2 block = uvec2(0);
        if (row < count) {
            codes = Words4(at).at[side];
            block = Words2(scales + (at - a.x) / 4).at[0];
        }
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            columns[(4 * side + i) * (kTileFours + 1) + row / 4][row % 4] = codes[i];
        }
        if (side == 0) {
            column_scales[row] = uintBitsToFloat(block.x);
            column_sums[row] = HalfSums(block.y);
        }
    }
}

// sums += products of the loaded columns.
void AddProducts(uint lane, inout Sums sums) {
    const uint across = Across(lane), down = Down(lane);
    [[unroll]] for (uint part = 0; part < PARTS; ++part) {
        ivec4 dots[kRowsEach];
        [[unroll]] for (uint i = 0; i < kRowsEach; ++i) dots[i] = ivec4(0);
        [[unroll]] for (uint k = 0; k < kWords / PARTS; ++k) {
            const uint word = part * (kWords / PARTS) + k;
            const uvec4 w = weights[word * (kWideFours + 1) + across];
            [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
                const uint at = word * (kTileFours + 1) + (down + i) / 4;
                const uint x = columns[at][kRowsEach == 2 ? (down + i) % 4 : i % 4];
                dots[i] += ivec4(Dot4(w.x, x), Dot4(w.y, x), Dot4(w.z, x), Dot4(w.w, x));
            }
        }
        const vec4 scale = weight_scales[part * kWideFours + across];
        const ivec4 zero = weight_zeros[across];
        [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
            const ivec2 both = column_sums[down + i];
            const int sum = PARTS == 2 ? both[part] : both.x + both.y;
            precise vec4 value = scale * vec4(dots[i] - zero * sum);
#if OFFSETS == 1
            value = fma(weight_offsets[part * kWideFours + across], vec4(sum), value);
#endif
            precise vec4 total = fma(vec4(column_scales[down + i]), value, sums.of[i]);
            sums.of[i] = total;
        }
    }
}
