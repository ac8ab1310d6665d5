// Gradients of causal attention (kernels/dense/attention.h) by keys and values: sums over the query
// heads of a KV head, in order, and over the queries that see a key.
//
// Workgroup (1, KV head, block of the step's table).
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "causal_tiles.glsl"

// Adds the contributions of `queries` queries of a head, from `first` on, to the gradients.
void AddQueries(uint head, uint first, uint queries, inout Sums dk, inout Sums dv) {
    const uint kv = gl_WorkGroupID.y;
    const Tile q = TileOf(a.q, head, Heads(), first, queries);
    const Tile dout = TileOf(a.dout, head, Heads(), first, queries);
    Products scores, ds;
    Multiply(TileOf(a.k, kv, KvHeads(), own_begin, own_rows), q, scores);
    Multiply(TileOf(a.v, kv, KvHeads(), own_begin, own_rows), dout, ds);
    [[unroll]] for (uint c = 0; c < kFours; ++c) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
            const uint query = OtherOf(c) + i;
            const uint at = head * a.rows + sequence_begin + first + min(query, queries - 1);
            const float lse = a.lse.at[at], sum = a.sums.at[at];
            [[unroll]] for (uint r = 0; r < 4; ++r) {
                const uint key = own_begin + 4 * Down() + r;
                const bool seen = query < queries && Sees(first + query, key);
                Differentiate(scores.of[4 * c + r][i], ds.of[4 * c + r][i],
                              BiasOf(SlopeOf(head), first + query, key), seen, lse, sum);
            }
        }
    }
    SetWeights(scores);
    AddWeighted(dout, dv);
    SetWeights(ds);
    AddWeighted(q, dk);
}

void main() {
    if (!Place()) return;
    const uint kv = gl_WorkGroupID.y;
    const uint end = EndOfQueries();
    Sums dk, dv;
    Clear(dk);
    Clear(dv);
    for (uint head = 0; head < Heads(); ++head) {
        if (KvHead(head) != kv) continue;
        for (uint first = own_begin / kOthers * kOthers; first < end; first += kOthers) {
            AddQueries(head, first, min(kOthers, end - first), dk, dv);
        }
    }
    Store(TileOf(a.first, kv, KvHeads(), own_begin, own_rows), dk);
    Store(TileOf(a.second, kv, KvHeads(), own_begin, own_rows), dv);
}
