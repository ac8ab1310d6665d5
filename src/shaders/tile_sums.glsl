// Part of tile.comp: the sums of a tile, where each invocation has 4 rows of the weight and
// kRowsEach of x.
const uint kAcross = 16;  // invocations that span the rows of the weight
const uint kRowsEach = kTile / (kSize / kAcross);

struct Sums { precise vec4 of[kRowsEach]; };

void Clear(out Sums sums) {
    [[unroll]] for (uint i = 0; i < kRowsEach; ++i) sums.of[i] = vec4(0);
}
uint Across(uint lane) { return lane % kAcross; }
uint Down(uint lane) { return lane / kAcross * kRowsEach; }

void BeginTile(uint head, uint first, uint64_t x, uint64_t x_stride, uint count, uint lane) {}

void StoreTile(uint64_t x, uint64_t x_stride, uint64_t y, uint64_t y_stride, uint head, uint first,
               uint count, uint lane, Sums sums) {
    [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
        const uint row = Down(lane) + i;
        if (row >= count) continue;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            StoreElement(y, y_stride, head, row, first + 4 * Across(lane) + c, sums.of[i][c]);
        }
    }
}
