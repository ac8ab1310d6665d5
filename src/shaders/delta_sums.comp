//: delta_keys_grad
//: delta_gates_grad -DGATES
// The gradients of kEvery rows of the delta rule, from the addends of the blocks of columns
// (delta_sums.glsl):
//     delta_keys_grad   dq and dk: sums over the blocks of all heads of a key head. An invocation
//                       per element
//     delta_gates_grad  ddecay, dbeta, da and dskip. A workgroup processes one head of one row at a
//                       time
#version 460
#include "floats.glsl"
#include "glu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kDims = 128;
layout(constant_id = 2) const bool kByChannel = false;
layout(constant_id = 3) const bool kSsd = false;
layout(constant_id = 4) const uint kEvery = 64;
#include "delta_sums.glsl"

#ifdef GATES
#include "reduce.glsl"
layout(push_constant, scalar) uniform Args {
    uint64_t room;
    Floats decay, beta, a, dt;  // beta: 0 with SSD
    Floats ddecay, dbeta, da, dskip;
    uint heads, cols, first_row, rows;
    float low;
};

float SumOfBlocks(uint64_t list, uint at, uint many) {
    float sum = 0;
    for (uint b = 0; b < BlocksOf(cols); ++b) sum += Floats(list).at[at + b * many];
    return sum;
}

void main() {
    const uint blocks = heads * BlocksOf(cols);
    for (uint unit = gl_WorkGroupID.x; unit < rows * heads; unit += gl_NumWorkGroups.x) {
        const uint head = unit % heads, cell = first_row * heads + unit;
        const uint part = unit * BlocksOf(cols), many = kByChannel ? kDims : 1;
        const float rate = a.at[head];
        const float dstrength = SumOfBlocks(StrengthsAt(room, blocks), part, 1);
        float own = 0;
        for (uint i = gl_LocalInvocationIndex; i < many; i += gl_WorkGroupSize.x) {
            const uint at = cell * many + i;
            const float raw = decay.at[at] + dt.at[head * many + i];
            const float dfade = SumOfBlocks(FadesAt(room, blocks), part * many + i, many);
            if (low != 0.0) {
                const float open = Sigmoid(abs(rate) * raw);
                const float slope = low * open * Sigmoid(-abs(rate) * raw);
                const float grad = dfade * exp(low * open) * slope;
                ddecay.at[at] = grad * abs(rate);
                own += rate < 0.0 ? -grad * raw : grad * raw;
            } else {
                const float step = Softplus(raw), grad = dfade * exp(rate * step);
                ddecay.at[at] = (grad * rate + (kSsd ? dstrength : 0.0)) * Sigmoid(raw);
                own = fma(grad, step, own);
            }
        }
        const float sum = SumOfGroup(own);
        if (gl_LocalInvocationIndex == 0) {
            da.at[cell] = sum;
            if (kSsd) {
                dskip.at[cell] = SumOfBlocks(SkipsAt(room, blocks), part, 1);
            } else {
                const float open = Sigmoid(beta.at[cell]);
                dbeta.at[cell] = dstrength * open * Sigmoid(-beta.at[cell]);
            }
        }
    }
}
#else
layout(push_constant, scalar) uniform Args {
    uint64_t room;
    Floats dq, dk;
    uint heads_and_keys, cols, first_heads, group_and_cycle;  // as in delta_trained.comp
    uint first_row, rows;
};

void main() {
    const uint heads = heads_and_keys & 0xffffu, key_heads = heads_and_keys >> 16;
    const uint group = group_and_cycle & 0xffffu, cycle = group_and_cycle >> 16;
    const uint blocks = heads * BlocksOf(cols);
    Floats queries = Floats(QueriesAt(room, blocks)), keys = Floats(KeysAt(room, blocks));
    const uint each = key_heads * kDims, count = rows * each;
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint n = gl_GlobalInvocationID.x; n < count; n += stride) {
        const uint row = n / each, key = n % each / kDims, i = n % kDims;
        vec2 sums = vec2(0);
        for (uint head = 0; head < heads; ++head) {
            const uint of_model = (first_heads & 0xffffu) + head;
            const uint own = cycle > 0 ? of_model % cycle : of_model / group;
            if (own - (first_heads >> 16) != key) continue;
            for (uint b = 0; b < BlocksOf(cols); ++b) {
                const uint at = PartAt(row, head, b, heads, cols) * kDims + i;
                sums += vec2(queries.at[at], keys.at[at]);
            }
        }
        dq.at[first_row * each + n] = sums.x;
        dk.at[first_row * each + n] = sums.y;
    }
}
#endif
