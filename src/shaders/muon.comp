//: muon_step
//: muon_scale -DSCALE
//: muon_mix -DMIX
//: muon_apply -DAPPLY
// Muon on one matrix (kernels/dense/update.h; Jordan et al. 2024). x is the step [short side, long
// side]: turned if the matrix has more rows than columns.
//     muon_step   updates the momentum and sets x. Each workgroup adds the squares of its elements
//     muon_scale  divides x by its norm
//     muon_mix    mixed = b gram + c mixed, and next = a x
//     muon_apply  adds x to the weights
#version 460
#include "element.glsl"
#include "pairs.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of gradient, copy

#if defined(MIX)
layout(push_constant, scalar) uniform Args {
    Floats gram, mixed, x, next;
    uint square, count;  // elements of gram, of x
};
const float kA = 3.4445, kB = -4.7750, kC = 2.0315;  // torch.optim.Muon's

void main() {
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < max(square, count); i += stride) {
        if (i < square) mixed.at[i] = kB * gram.at[i] + kC * mixed.at[i];
        if (i < count) next.at[i] = kA * x.at[i];
    }
}
#elif defined(SCALE)
layout(push_constant, scalar) uniform Args {
    Floats x, squares;  // squares: pairs
    uint count, groups;
};
shared float norm;

void main() {
    if (gl_LocalInvocationIndex == 0) {
        vec2 sum = vec2(0);
        for (uint i = 0; i < groups; ++i) {
            sum = AddPairs(sum, vec2(squares.at[2 * i], squares.at[2 * i + 1]));
        }
        norm = max(sqrt(sum.x + sum.y), 1.0e-7);
    }
    barrier();
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) x.at[i] /= norm;
}
#else
layout(push_constant, scalar) uniform Args {
    uint64_t gradient;  // of the matrix, as the next three
    Floats momentum, weights;
    uint64_t copy;      // 0 if absent
    Floats x, squares;  // squares: pairs, one per workgroup
    Floats gradient_scale, rate;
    uint rows, cols;
    float kept, nesterov;  // kept: the part of the momentum
    float size, decay;     // size: factor of the rate
};

// The index in x of element i of the matrix.
uint At(uint i) {
    return rows > cols ? i % cols * rows + i / cols : i;
}

#if defined(APPLY)
void main() {
    const uint count = rows * cols, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const float each = rate.at[0] * size, left = 1.0 - rate.at[0] * decay;
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        const float weight = weights.at[i] * left - each * x.at[At(i)];
        weights.at[i] = weight;
        if (copy != 0) Store(copy, TypeIn(kTypes, 1), i, weight);
    }
}
#else
shared vec2 parts[gl_WorkGroupSize.x];

void main() {
    const uint count = rows * cols, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    const uint lane = gl_LocalInvocationIndex;
    vec2 sum = vec2(0);
    for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
        const float g = Load(gradient, TypeIn(kTypes, 0), i) * gradient_scale.at[0];
        const float m = momentum.at[i] + (1.0 - kept) * (g - momentum.at[i]);
        momentum.at[i] = m;
        const float next = nesterov != 0.0 ? g + kept * (m - g) : m;
        x.at[At(i)] = next;
        sum = AddSquareTo(sum, next);
    }
    parts[lane] = sum;
    barrier();
    if (lane != 0) return;
    for (uint i = 1; i < gl_WorkGroupSize.x; ++i) sum = AddPairs(sum, parts[i]);
    squares.at[2 * gl_WorkGroupID.x] = sum.x;
    squares.at[2 * gl_WorkGroupID.x + 1] = sum.y;
}
#endif
#endif
