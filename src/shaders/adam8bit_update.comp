// A step of Adam with one-byte moments (tensor/dynamic_codes.h): a workgroup of 64 processes blocks
// of 256 elements, which share a scale; each invocation handles a word of four codes.
#version 460
#include "element.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // element types: gradient, copy
layout(constant_id = 2) const bool kWide = false;
#include "update.glsl"
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(push_constant, scalar) uniform Args {
    uint64_t gradient, weights;
    uint64_t m, v;  // codes, at the byte offset of their element
    Floats m_scales, v_scales;
    uint64_t copy;  // may be 0
    uint64_t codes;  // for m: 256 values, 255 midpoints and one more number; then the same for v
    UpdateRuns runs;
    Floats rate, gradient_scale, correction1, correction2;
    uint run_count, blocks;
    float beta1, beta2, eps;
};
const uint64_t kTableBytes = 256 * 4;

vec4 Widen(uint64_t table, uint word, float scale) {
    vec4 wide;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        wide[k] = Floats(table).at[bitfieldExtract(word, int(8 * k), 8)] * scale;
    }
    return wide;
}
// The nearest code (the greater one of two), which is the number of midpoints that are not above x.
uint Nearest(uint64_t table, float x) {
    Floats middles = Floats(table + kTableBytes);
    uint begin = 0, end = 255;
    while (begin < end) {
        const uint middle = (begin + end) / 2;
        if (middles.at[middle] <= x) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}
// Encodes the first `left` of four elements and keeps the other bytes of the word.
uint Narrow(uint64_t table, vec4 wide, float scale, uint left, uint word) {
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (k >= left) continue;
        const uint code = Nearest(table, scale > 0 ? Divide(wide[k], scale) : 0.0);
        word = bitfieldInsert(word, code, int(8 * k), 8);
    }
    return word;
}
// left: 0 if the invocation has no elements.
float Largest(vec4 wide, uint left) {
    float most = 0;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (k < left) most = max(most, abs(wide[k]));
    }
    return MaxOfGroup(most);
}

void Block(UpdateRun run, uint64_t begin, uint count) {
    const uint i = 4 * gl_LocalInvocationIndex, left = i < count ? count - i : 0;
    const uint64_t at = begin + i, scale_at = begin / 256;
    uint m_word = 0, v_word = 0;
    vec4 first = vec4(0), second = vec4(0);
    if (left > 0) {
        m_word = Words(m + at).at[0];
        v_word = Words(v + at).at[0];
        const vec4 weight = LoadQuad(weights, kF32, at, left, kWide);
        const vec4 g = gradient_scale.at[0] *
                           LoadQuad(gradient, TypeIn(kTypes, 0), at, left, kWide) +
                       run.l2 * weight;
        first = beta1 * Widen(codes, m_word, m_scales.at[uint(scale_at)]) + (1 - beta1) * g;
        second = beta2 * Widen(codes + 2 * kTableBytes, v_word, v_scales.at[uint(scale_at)]) +
                 (1 - beta2) * g * g;
        const vec4 size = sqrt(second / correction2.at[0]) + eps;
        const vec4 change = run.decay * weight + first / correction1.at[0] / size;
        const vec4 after = weight - rate.at[0] * change;
        StoreQuad(weights, kF32, at, left, kWide, after);
        if (copy != 0) StoreQuad(copy, TypeIn(kTypes, 1), at, left, kWide, after);
    }
    const float m_scale = Largest(first, left), v_scale = Largest(second, left);
    if (left > 0) {
        Words(m + at).at[0] = Narrow(codes, first, m_scale, left, m_word);
        Words(v + at).at[0] = Narrow(codes + 2 * kTableBytes, second, v_scale, left, v_word);
    }
    if (gl_LocalInvocationIndex == 0) {
        m_scales.at[uint(scale_at)] = m_scale;
        v_scales.at[uint(scale_at)] = v_scale;
    }
}

void main() {
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        const UpdateRun run = RunOf(runs, run_count, block);
        const uint64_t first = uint64_t(block - run.first_block) * kUpdateBlock;
        Block(run, run.begin + first, uint(min(run.count - first, uint64_t(kUpdateBlock))));
    }
}
