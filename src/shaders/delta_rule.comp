// delta_rule: the gated delta rule, or SSD, over the rows of a sequence, in order. Workgroup (block
// of kColumns columns of the state, head, sequence). Each invocation keeps every kLanes-th row of
// one column of the state in registers; sums over lanes are computed in shared memory, in order.
#version 460
#include "floats.glsl"
#include "glu.glsl"
#include "states.glsl"
layout(local_size_x_id = 0) in;  // kColumns * kLanes
layout(constant_id = 1) const uint kDims = 128;  // of a key: rows of the state
layout(constant_id = 2) const bool kByChannel = false;
layout(constant_id = 3) const bool kSsd = false;  // beta is then skip [heads]
layout(push_constant, scalar) uniform Args {
    Floats q, k, v, decay, beta, a, dt, state, y;
    States states;
    Ints writes;
    uint heads_and_keys;  // heads, key heads << 16
    uint cols;            // per head's values
    uint first_heads;     // first head, first key head << 16
    uint group_and_cycle;
    float query_scale, key_scale, low;
    uint first_row, rows;  // of the step: the part of this dispatch
};

const uint kColumns = 16, kLanes = 8, kEach = (kDims + kLanes - 1) / kLanes;
shared float keys[kDims], queries[kDims], fades[kDims];
shared float step_of_row;  // kSsd
shared float known_parts[kLanes][kColumns], out_parts[kLanes][kColumns];

// known: of known_parts, else of out_parts. (As an argument, an array would be copied.)
float SumOf(const bool known, uint column) {
    float sum = 0.0;
    for (uint lane = 0; lane < kLanes; ++lane) {
        sum += known ? known_parts[lane][column] : out_parts[lane][column];
    }
    return sum;
}

void main() {
    const uint column = gl_LocalInvocationIndex % kColumns;
    const uint lane = gl_LocalInvocationIndex / kColumns;
    const uint head = gl_WorkGroupID.y, first = gl_WorkGroupID.x * kColumns;
    const uint heads = heads_and_keys & 0xffffu, key_heads = heads_and_keys >> 16;
    const uint group = group_and_cycle & 0xffffu, cycle = group_and_cycle >> 16;
    const uint of_model = (first_heads & 0xffffu) + head;
    const uint key = (cycle > 0 ? of_model % cycle : of_model / group) - (first_heads >> 16);
    const uint width = min(kColumns, cols - first);  // columns of the block, as stored in a slot
    const bool own = column < width;
    const uint slot_floats = heads * kDims * cols;
    const uint place = (head * cols + first) * kDims + column;
    StatePart part = PartOf(states.at[gl_WorkGroupID.z], writes, first_row, rows);
    float cells[kEach];
    for (uint j = 0; j < kEach; ++j) {
        const uint i = j * kLanes + lane;
        const bool there = own && i < kDims && part.from >= 0;
        cells[j] = there ? state.at[part.from * slot_floats + place + i * width] : 0.0;
    }
    for (int row = part.begin; row < part.end; ++row) {
        const uint cell = row * heads + head;
        barrier();
        for (uint i = gl_LocalInvocationIndex; i < kDims; i += gl_WorkGroupSize.x) {
            const uint at = (row * key_heads + key) * kDims + i;
            const bool steps = kByChannel && !kSsd;  // one for each row of the state
            const uint each = steps ? i : 0, many = steps ? kDims : 1;
            keys[i] = key_scale * k.at[at];
            queries[i] = query_scale * q.at[at];
            const float raw = decay.at[cell * many + each] + dt.at[head * many + each];
            const float step = Softplus(raw), rate = a.at[kByChannel && kSsd ? head * kDims + i : head];
            fades[i] = exp(low != 0.0 ? low * Sigmoid(abs(rate) * raw) : rate * step);
            if (i == 0) step_of_row = step;
        }
        barrier();
        float known = 0.0;
        for (uint j = 0; j < kEach; ++j) {
            const uint i = j * kLanes + lane;
            if (i >= kDims) break;
            cells[j] *= fades[i];
            if (!kSsd) known = fma(keys[i], cells[j], known);
        }
        const float value = own ? v.at[cell * cols + first + column] : 0.0;
        float change = value * step_of_row;
        if (!kSsd) {
            known_parts[lane][column] = known;
            barrier();
            change = (value - SumOf(true, column)) * Sigmoid(beta.at[cell]);
        }
        float result = 0.0;
        for (uint j = 0; j < kEach; ++j) {
            const uint i = j * kLanes + lane;
            if (i >= kDims) break;
            cells[j] = fma(keys[i], change, cells[j]);
            result = fma(queries[i], cells[j], result);
        }
        out_parts[lane][column] = result;
        barrier();
        if (lane == 0 && own) {
            const float sum = SumOf(false, column);
            y.at[cell * cols + first + column] = kSsd ? fma(beta.at[head], value, sum) : sum;
        }
        bool ended = false;
        for (int to; (to = NextSlot(part, writes, row, ended)) >= 0;) {
            for (uint j = 0; j < kEach; ++j) {
                const uint i = j * kLanes + lane;
                if (own && i < kDims) {
                    state.at[to * slot_floats + place + i * width] = cells[j];
                }
            }
        }
    }
}
