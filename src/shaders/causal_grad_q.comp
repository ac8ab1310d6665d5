// Gradient of causal attention (kernels/dense/attention.h) by queries, and the row sums of dout *
// out, which causal_grad_kv.comp reads.
//
// Workgroup (1, head, block of the step's table).
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "causal_tiles.glsl"

vec4 SumsOfRows(Tile dout, uint head) {
    const Tile made = TileOf(a.out_rows, head, Heads(), own_begin, own_rows);
    vec4 sums = vec4(0.0);
    [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) {
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            const uint row = 4 * Down() + r, quad = Across() + j * kAcross;
            const vec4 x = QuadOf(dout, row, quad), y = QuadOf(made, row, quad);
            sums[r] = fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sums[r]))));
        }
    }
    return SumOfLanes(sums);
}

void main() {
    if (!Place()) return;
    const uint head = gl_WorkGroupID.y, kv = KvHead(head);
    const uint end = own_begin + own_rows;
    const Tile q = TileOf(a.q, head, Heads(), own_begin, own_rows);
    const Tile dout = TileOf(a.dout, head, Heads(), own_begin, own_rows);
    const vec4 row_sums = SumsOfRows(dout, head);
    vec4 lse = vec4(0.0);
    [[unroll]] for (uint r = 0; r < 4; ++r) {
        const uint row = 4 * Down() + r;
        const uint at = head * a.rows + sequence_begin + own_begin + row;
        if (row < own_rows) lse[r] = a.lse.at[at];
        if (row < own_rows && Across() == 0) a.sums.at[at] = row_sums[r];
    }
    Sums sums;
    Clear(sums);
    for (uint first = FirstKey(own_begin) / kOthers * kOthers; first < end; first += kOthers) {
        const uint keys = min(kOthers, end - first);
        const Tile k = TileOf(a.k, kv, KvHeads(), first, keys);
        Products scores, ds;
        Multiply(q, k, scores);
        Multiply(dout, TileOf(a.v, kv, KvHeads(), first, keys), ds);
        [[unroll]] for (uint c = 0; c < kFours; ++c) {
            [[unroll]] for (uint r = 0; r < 4; ++r) {
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    const uint row = 4 * Down() + r, key = first + OtherOf(c) + i;
                    const bool seen = row < own_rows && Sees(own_begin + row, key);
                    Differentiate(scores.of[4 * c + r][i], ds.of[4 * c + r][i],
                                  BiasOf(SlopeOf(head), own_begin + row, key), seen, lse[r],
                                  row_sums[r]);
                }
            }
        }
        SetWeights(ds);
        AddWeighted(k, sums);
    }
    Store(TileOf(a.first, head, Heads(), own_begin, own_rows), sums);
}
