//: delta_trained
//: delta_grad -DGRAD
// The gated delta rule and SSD of training, over whole sequences, and the gradients of the
// recurrence (program/recurrent.h). Workgroup (block of kColumns columns of the state, head,
// sequence); the columns of a state do not depend on each other. An invocation has every
// gl_WorkGroupSize.x-th row of the block. Sums over rows are computed in shared memory, in order.
//
// delta_trained computes rows [first_row, first_row + rows) of the step, in order, and y if it is
// not 0. It begins with the state in `kept` that an earlier dispatch has stored, and stores the
// state before every kEvery-th row of the step that is not the first row of a sequence.
//
// delta_grad computes the same kEvery rows again and stores the states before them; then it
// processes the rows in reverse order. It begins with the gradient of the state after the rows, and
// stores the gradient of the state before them. It writes dv, and the block's addends to the other
// gradients (delta_sums.glsl).
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "floats.glsl"
#include "glu.glsl"
#include "reduce.glsl"
#include "sequences.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kDims = 128;  // of a key: rows of the state
layout(constant_id = 2) const bool kByChannel = false;
layout(constant_id = 3) const bool kSsd = false;  // beta is then skip [heads]
layout(constant_id = 4) const uint kEvery = 64;
layout(push_constant, scalar) uniform Args {
    Floats q, k, v, decay, beta, a, dt;
#ifdef GRAD
    Floats dy, dv;
    uint64_t room;  // delta_sums.glsl
#else
    Floats y;  // 0 if absent
#endif
    uint64_t kept;  // [rows of the step / kEvery, heads, blocks, kDims, kColumns]
    Sequences sequences;
    uint heads_and_keys;  // heads, key heads << 16
    uint cols;            // per head's values
    uint first_heads;     // first head, first key head << 16
    uint group_and_cycle;
    float query_scale, key_scale, low;
    uint first_row;
#ifndef GRAD
    uint rows;
#endif
};
#ifdef GRAD
const uint rows = kEvery;
#endif
#include "delta_sums.glsl"

// (Loops over kEach and kQuads are unrolled, because LLVM puts an array of which a loop selects
// elements into scratch memory.)
const uint kEach = (kDims + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint kQuads = kColumns / 4;
shared vec4 quads[kQuads * gl_WorkGroupSize.x];
shared vec4 partial[kQuads * 8];
shared float values[2][kColumns], slopes[2][kColumns];  // of v and dy, by the row's last bit

uint Dim(uint turn) {
    return turn * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
}

// The sum of one column, between two calls of SumColumns. (If an invocation's index selects an
// element of `all`, compilers put the array into scratch memory.)
float SumOfColumn(uint column) {
    float sum = 0;
    [[dont_unroll]] for (uint part = 0; part < 8; ++part) {
        sum += partial[part * kQuads + column / 4][column % 4];
    }
    return sum;
}
// The sums of all invocations' numbers of each column. `all` may be `own`.
void SumColumns(vec4 own[kQuads], out vec4 all[kQuads]) {
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    [[unroll]] for (uint i = 0; i < kQuads; ++i) quads[i * lanes + lane] = own[i];
    barrier();
    if (lane < kQuads * 8) {
        const uint i = lane % kQuads, part = lane / kQuads;
        vec4 sum = vec4(0);
        [[dont_unroll]] for (uint n = 0; n < lanes / 8; ++n) {
            sum += quads[i * lanes + part * (lanes / 8) + n];
        }
        partial[lane] = sum;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < kQuads; ++i) {
        all[i] = vec4(0);
        [[dont_unroll]] for (uint part = 0; part < 8; ++part) all[i] += partial[part * kQuads + i];
    }
}

// This workgroup's head and columns.
uint heads, head, key_heads, key, first_column, width;
void Place() {
    heads = heads_and_keys & 0xffffu;
    key_heads = heads_and_keys >> 16;
    head = gl_WorkGroupID.y;
    const uint group = group_and_cycle & 0xffffu, cycle = group_and_cycle >> 16;
    const uint of_model = (first_heads & 0xffffu) + head;
    key = (cycle > 0 ? of_model % cycle : of_model / group) - (first_heads >> 16);
    first_column = gl_WorkGroupID.x * kColumns;
    width = min(kColumns, cols - first_column);
}

// The head's numbers of a row of the step, and the numbers of the invocation's rows of the state.
struct RowNumbers { float query, key, fade; };
float strength;
RowNumbers numbers[kEach];
void FindNumbers(uint row) {
    const uint cell = row * heads + head, at = (row * key_heads + key) * kDims;
    const uint many = kByChannel ? kDims : 1;
    const float rate = a.at[head];
    strength = kSsd ? Softplus(decay.at[cell] + dt.at[head]) : Sigmoid(beta.at[cell]);
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        const uint dim = Dim(t), each = kByChannel ? dim : 0;
        numbers[t] = RowNumbers(0.0, 0.0, 0.0);
        if (dim >= kDims) continue;
        const float raw = decay.at[cell * many + each] + dt.at[head * many + each];
        const float power = low != 0.0 ? low * Sigmoid(abs(rate) * raw) : rate * Softplus(raw);
        numbers[t] =
            RowNumbers(query_scale * q.at[at + dim], key_scale * k.at[at + dim], exp(power));
    }
}

// Puts the columns' values of a row into shared memory.
void Stage(uint row) {
    const uint column = gl_LocalInvocationIndex;
    if (column < kColumns) {
        const uint at = (row * heads + head) * cols + first_column + column;
        values[row & 1][column] = column < width ? v.at[at] : 0.0;
#ifdef GRAD
        slopes[row & 1][column] = column < width ? dy.at[at] : 0.0;
#endif
    }
    barrier();
}
vec4 ValuesOf(uint row, uint i) {
    return vec4(values[row & 1][4 * i], values[row & 1][4 * i + 1], values[row & 1][4 * i + 2],
                values[row & 1][4 * i + 3]);
}

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer StateQuads {
    vec4 at[];
};
// A row of the block in a list of states [_, heads, blocks, kDims, kColumns].
StateQuads StateAt(uint64_t list, uint number, uint dim) {
    const uint64_t place = (uint64_t(number) * heads + head) * BlocksOf(cols) + gl_WorkGroupID.x;
    return StateQuads(list + (place * kDims + dim) * kColumns * 4);
}

struct State {
    vec4 of[kEach * kQuads];
};
void Clear(out State state) {
    [[unroll]] for (uint i = 0; i < kEach * kQuads; ++i) state.of[i] = vec4(0);
}
void LoadState(uint64_t list, uint number, out State state) {
    Clear(state);
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        if (Dim(t) >= kDims) continue;
        StateQuads from = StateAt(list, number, Dim(t));
        [[unroll]] for (uint i = 0; i < kQuads; ++i) state.of[t * kQuads + i] = from.at[i];
    }
}
void StoreState(uint64_t list, uint number, State state) {
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        if (Dim(t) >= kDims) continue;
        StateQuads to = StateAt(list, number, Dim(t));
        [[unroll]] for (uint i = 0; i < kQuads; ++i) to.at[i] = state.of[t * kQuads + i];
    }
}

// v - (fade * S)^T k for the state S before a row, or v with SSD.
void FindRest(uint row, State before, out vec4 rest[kQuads]) {
    [[unroll]] for (uint i = 0; i < kQuads; ++i) rest[i] = vec4(0);
    if (!kSsd) {
        [[unroll]] for (uint t = 0; t < kEach; ++t) {
            const RowNumbers n = numbers[t];
            [[unroll]] for (uint i = 0; i < kQuads; ++i) {
                rest[i] -= n.key * n.fade * before.of[t * kQuads + i];
            }
        }
        vec4 known[kQuads];
        SumColumns(rest, known);
        [[unroll]] for (uint i = 0; i < kQuads; ++i) rest[i] = known[i];
    }
    [[unroll]] for (uint i = 0; i < kQuads; ++i) rest[i] += ValuesOf(row, i);
}

// The state after a row. queried: the invocation's addends to q^T S.
void Advance(uint row, inout State state, out vec4 queried[kQuads]) {
    vec4 rest[kQuads];
    FindNumbers(row);
    FindRest(row, state, rest);
    [[unroll]] for (uint i = 0; i < kQuads; ++i) queried[i] = vec4(0);
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        const RowNumbers n = numbers[t];
        [[unroll]] for (uint i = 0; i < kQuads; ++i) {
            const vec4 faded = n.fade * state.of[t * kQuads + i];
            state.of[t * kQuads + i] = faded + n.key * strength * rest[i];
            queried[i] += n.query * state.of[t * kQuads + i];
        }
    }
}

// The workgroup's sequence within the dispatch's rows; begin >= end: none of its rows.
uint sequence_begin, sequence_end, begin, end;
void FindRows() {
    const SequenceEntry sequence = sequences.at[gl_WorkGroupID.z];
    sequence_begin = uint(sequence.row_begin);
    sequence_end = uint(sequence.row_begin + sequence.row_count);
    begin = max(sequence_begin, first_row);
    end = min(sequence_end, first_row + rows);
}

#ifdef GRAD
uint AllBlocks() {
    return heads * BlocksOf(cols);
}

// The row's numbers that all invocations have.
void WriteSums(uint row, vec4 dchange[kQuads], vec4 rest[kQuads], float faded) {
    float of_strength = 0, of_skip = 0;
    [[unroll]] for (uint i = 0; i < kQuads; ++i) of_strength += dot(dchange[i], rest[i]);
    [[dont_unroll]] for (uint c = 0; c < kColumns; ++c) {
        of_skip = fma(slopes[row & 1][c], values[row & 1][c], of_skip);
    }
    const float of_fade = kByChannel ? 0.0 : SumOfGroup(faded);
    if (gl_LocalInvocationIndex != 0) return;
    const uint place = PartAt(row - first_row, head, gl_WorkGroupID.x, heads, cols);
    Floats(StrengthsAt(room, AllBlocks())).at[place] = of_strength;
    Floats(SkipsAt(room, AllBlocks())).at[place] = of_skip;
    if (!kByChannel) Floats(FadesAt(room, AllBlocks())).at[place] = of_fade;
}

// From the state's gradient after a row, computes the row's and the previous state's.
void Back(uint row, State before, inout State grad) {
    Stage(row);
    FindNumbers(row);
    vec4 rest[kQuads], dchange[kQuads], slope[kQuads];
    FindRest(row, before, rest);
    [[unroll]] for (uint i = 0; i < kQuads; ++i) {
        dchange[i] = vec4(0);
        slope[i] = vec4(slopes[row & 1][4 * i], slopes[row & 1][4 * i + 1],
                        slopes[row & 1][4 * i + 2], slopes[row & 1][4 * i + 3]);
    }
    const uint place = PartAt(row - first_row, head, gl_WorkGroupID.x, heads, cols) * kDims;
    float dkeys[kEach];
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        const RowNumbers n = numbers[t];
        float seen = 0, changed = 0, of_key = 0;
        [[unroll]] for (uint i = 0; i < kQuads; ++i) {
            const uint at = t * kQuads + i;
            const vec4 change = strength * rest[i];
            seen += dot(before.of[at], slope[i]);
            changed += dot(change, slope[i]);
            grad.of[at] += n.query * slope[i];
            of_key += dot(grad.of[at], change);
            dchange[i] += n.key * grad.of[at];
        }
        dkeys[t] = of_key;
        if (Dim(t) >= kDims) continue;
        Floats(QueriesAt(room, AllBlocks())).at[place + Dim(t)] =
            query_scale * (n.fade * seen + n.key * changed);
    }
    vec4 all[kQuads];
    SumColumns(dchange, all);
    [[unroll]] for (uint i = 0; i < kQuads; ++i) {
        dchange[i] = all[i];
        all[i] *= strength;
    }
    const uint own = gl_LocalInvocationIndex;
    if (own < width) {
        const float skipped = kSsd ? beta.at[head] * slopes[row & 1][own] : 0.0;
        const uint at = (row * heads + head) * cols + first_column + own;
        dv.at[at] = strength * SumOfColumn(own) + skipped;
    }
    float faded = 0;
    [[unroll]] for (uint t = 0; t < kEach; ++t) {
        const RowNumbers n = numbers[t];
        float of_fade = 0;
        [[unroll]] for (uint i = 0; i < kQuads; ++i) {
            const uint at = t * kQuads + i;
            if (!kSsd) {
                dkeys[t] -= n.fade * dot(before.of[at], all[i]);
                grad.of[at] -= n.key * all[i];
            }
            of_fade += dot(grad.of[at], before.of[at]);
            grad.of[at] *= n.fade;
        }
        faded += of_fade;
        if (Dim(t) >= kDims) continue;
        Floats(KeysAt(room, AllBlocks())).at[place + Dim(t)] = key_scale * dkeys[t];
        if (kByChannel) Floats(FadesAt(room, AllBlocks())).at[place + Dim(t)] = of_fade;
    }
    WriteSums(row, dchange, rest, faded);
}

void main() {
    Place();
    FindRows();
    if (begin >= end) return;
    State state, grad;
    vec4 queried[kQuads];
    Clear(state);
    Clear(grad);
    if (begin > sequence_begin) LoadState(kept, begin / kEvery, state);
    for (uint row = begin; row < end; ++row) {
        StoreState(room, 2 + row - first_row, state);
        Stage(row);
        Advance(row, state, queried);
    }
    barrier();
    // The places of gradients alternate, because another sequence's may be needed at the same time.
    const uint turn = first_row / kEvery & 1;
    if (end < sequence_end) LoadState(room, 1 - turn, grad);
    for (uint row = end; row-- > begin;) {
        LoadState(room, 2 + row - first_row, state);
        Back(row, state, grad);
    }
    if (begin > sequence_begin) StoreState(room, turn, grad);
}
#else
void main() {
    Place();
    FindRows();
    if (begin >= end) return;
    State state;
    vec4 queried[kQuads], all[kQuads];
    Clear(state);
    if (begin > sequence_begin) LoadState(kept, begin / kEvery, state);
    for (uint row = begin; row < end; ++row) {
        Stage(row);
        Advance(row, state, queried);
        if ((row + 1) % kEvery == 0 && row + 1 < sequence_end) {
            StoreState(kept, (row + 1) / kEvery, state);
        }
        if (uint64_t(y) == 0) continue;
        SumColumns(queried, all);
        const uint own = gl_LocalInvocationIndex;
        if (own >= width) continue;
        const float skipped = kSsd ? beta.at[head] * values[row & 1][own] : 0.0;
        y.at[(row * heads + head) * cols + first_column + own] = SumOfColumn(own) + skipped;
    }
}
#endif
