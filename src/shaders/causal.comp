// Causal attention for training (kernels/dense/attention.h), with an online softmax over tiles of
// keys (Milakov and Gimelshein 2018; Dao et al. 2022). A tile that is hidden from a row changes
// none of its bits.
//
// Workgroup (1, head, block of the step's table).
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "causal_tiles.glsl"

const float kHidden = -3.0e38;  // score of a hidden key

vec4 most = vec4(kHidden), totals = vec4(0.0);  // per row, over the invocation's columns

// Turns scores into weights, up to a factor per row.
void Soften(uint first, float head_slope, inout Products scores, inout Sums sums) {
    vec4 largest = most;
    [[unroll]] for (uint c = 0; c < kFours; ++c) {
        [[unroll]] for (uint r = 0; r < 4; ++r) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                const uint row = own_begin + 4 * Down() + r;
                float slope;
                const uint key = first + OtherOf(c) + i;
                const float bias = BiasOf(head_slope, row, key);
                const float score = ScoreOf(scores.of[4 * c + r][i], bias, slope);
                const bool seen = Sees(row, key);
                scores.of[4 * c + r][i] = seen ? score : kHidden;
                largest[r] = max(largest[r], scores.of[4 * c + r][i]);
            }
        }
    }
    largest = LargestOfLanes(largest);
    const vec4 shrink = exp(most - largest);
    most = largest;
    totals *= shrink;
    [[unroll]] for (uint r = 0; r < 4; ++r) {
        float sum = 0.0;
        [[unroll]] for (uint c = 0; c < kFours; ++c) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                const float score = scores.of[4 * c + r][i];
                const float weight = score <= -2.9e38 ? 0.0 : exp(score - largest[r]);
                scores.of[4 * c + r][i] = weight;
                sum += weight;
            }
        }
        totals[r] += sum;
        [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) sums.of[4 * j + r] *= shrink[r];
    }
}

// Adds a score without a value.
void AddSink(float sink, inout vec4 all, inout Sums sums) {
    const vec4 largest = max(most, vec4(sink)), shrink = exp(most - largest);
    all = all * shrink + exp(vec4(sink) - largest);
    most = largest;
    [[unroll]] for (uint r = 0; r < 4; ++r) {
        [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) sums.of[4 * j + r] *= shrink[r];
    }
}

void main() {
    if (!Place()) return;
    const uint head = gl_WorkGroupID.y, kv = KvHead(head);
    const uint end = own_begin + own_rows;
    const Tile q = TileOf(a.q, head, Heads(), own_begin, own_rows);
    Sums sums;
    Clear(sums);
    for (uint first = FirstKey(own_begin) / kOthers * kOthers; first < end; first += kOthers) {
        const uint keys = min(kOthers, end - first);
        Products scores;
        Multiply(q, TileOf(a.k, kv, KvHeads(), first, keys), scores);
        Soften(first, SlopeOf(head), scores, sums);
        SetWeights(scores);
        AddWeighted(TileOf(a.v, kv, KvHeads(), first, keys), sums);
    }
    vec4 all = SumOfLanes(totals);
    if (uint64_t(a.sums) != 0) AddSink(a.sums.at[head], all, sums);
    [[unroll]] for (uint r = 0; r < 4; ++r) {
        [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) sums.of[4 * j + r] /= all[r];
        const uint row = 4 * Down() + r;
        if (uint64_t(a.lse) == 0 || Across() != 0 || row >= own_rows) continue;
        a.lse.at[head * a.rows + sequence_begin + own_begin + row] = most[r] + log(all[r]);
    }
    Store(TileOf(a.first, head, Heads(), own_begin, own_rows), sums);
}
