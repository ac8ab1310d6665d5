//: adam_update -DADAM
//: sgd_update -DSGD
//: lion_update -DLION
//: schedule_free_update -DSCHEDULE_FREE
//: schedule_free_view -DVIEW
// An optimizer step over runs of elements (kernels/dense/rows.h, AdamArgs and SgdArgs;
// kernels/dense/update.h, LionRunsArgs, ScheduleFreeRunsArgs and ScheduleFreeViewArgs). Values that
// change from update to update are read from memory.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of gradient, copy
layout(constant_id = 2) const bool kWide = false;
#include "update.glsl"
layout(push_constant, scalar) uniform Args {
    uint64_t gradient, weights, m, v, copy;  // m, v, copy: may be 0
    UpdateRuns runs;
    Floats rate, gradient_scale, correction1, correction2;  // SGD: correction1 is 1 for the first
                                                            // update, else 0. Schedule-free:
                                                            // correction1 is the average's share
    uint run_count, blocks;
    float beta1, beta2, eps;  // SGD: momentum, 1 - dampening; eps not 0: Nesterov. View: eps not 0:
                              // the average. Schedule-free: m is z
};

struct Place {
    uint64_t own, kept;  // elements
    uint left;
    bool wide;
    float l2, decay;
};

vec4 Gradient(Place at, vec4 weight) {
    const vec4 raw = LoadQuad(gradient, TypeIn(kTypes, 0), at.own, at.left, at.wide);
    return gradient_scale.at[0] * raw + at.l2 * weight;
}

#ifdef ADAM
vec4 Change(Place at, vec4 weight, vec4 g) {
    vec4 first = LoadQuad(m, kF32, at.kept, at.left, at.wide);
    vec4 second = LoadQuad(v, kF32, at.kept, at.left, at.wide);
    first = beta1 * first + (1 - beta1) * g;
    second = beta2 * second + (1 - beta2) * g * g;
    StoreQuad(m, kF32, at.kept, at.left, at.wide, first);
    StoreQuad(v, kF32, at.kept, at.left, at.wide, second);
    const vec4 size = sqrt(second / correction2.at[0]) + eps;
    return at.decay * weight + first / correction1.at[0] / size;
}
#elif defined(LION)
vec4 Change(Place at, vec4 weight, vec4 g) {
    const vec4 before = LoadQuad(m, kF32, at.kept, at.left, at.wide);
    StoreQuad(m, kF32, at.kept, at.left, at.wide, beta2 * before + (1 - beta2) * g);
    return sign(beta1 * before + (1 - beta1) * g) + at.decay * weight;
}
#elif defined(SCHEDULE_FREE)
vec4 After(Place at, vec4 y, vec4 g) {
    const vec4 z = LoadQuad(m, kF32, at.kept, at.left, at.wide);
    const vec4 before = LoadQuad(v, kF32, at.kept, at.left, at.wide);
    const vec4 second = beta2 * before + (1 - beta2) * g * g;
    StoreQuad(v, kF32, at.kept, at.left, at.wide, second);
    const vec4 step = g / (sqrt(second / correction2.at[0]) + eps) + at.decay * y;
    StoreQuad(m, kF32, at.kept, at.left, at.wide, z - rate.at[0] * step);
    const float share = correction1.at[0];
    return y + share * (z - y) + rate.at[0] * (beta1 * (1 - share) - 1) * step;
}
#elif defined(SGD)
vec4 Change(Place at, vec4 weight, vec4 g) {
    if (m == 0) return g;
    const float taken = correction1.at[0] != 0 ? 1.0 : beta2;
    const vec4 before = LoadQuad(m, kF32, at.kept, at.left, at.wide);
    const vec4 moved = beta1 * before + taken * g;
    StoreQuad(m, kF32, at.kept, at.left, at.wide, moved);
    return eps != 0 ? g + beta1 * moved : moved;
}
#endif

#ifdef VIEW
void Quad(Place at) {
    const vec4 y = LoadQuad(weights, kF32, at.own, at.left, at.wide);
    if (copy == 0 && eps == 0) {
        const vec4 aside = LoadQuad(gradient, kF32, at.own, at.left, at.wide);
        StoreQuad(weights, kF32, at.own, at.left, at.wide, aside);
        return;
    }
    const vec4 z = LoadQuad(m, kF32, at.kept, at.left, at.wide);
    const vec4 x = eps != 0 ? y + beta1 * (z - y) : y;
    if (copy != 0) {
        StoreQuad(copy, TypeIn(kTypes, 1), at.own, at.left, at.wide, x);
    } else {
        StoreQuad(gradient, kF32, at.own, at.left, at.wide, y);
        StoreQuad(weights, kF32, at.own, at.left, at.wide, x);
    }
}
#else
void Quad(Place at) {
    const vec4 before = LoadQuad(weights, kF32, at.own, at.left, at.wide);
#ifdef SCHEDULE_FREE
    const vec4 after = After(at, before, Gradient(at, before));
#else
    const vec4 after = before - rate.at[0] * Change(at, before, Gradient(at, before));
#endif
    StoreQuad(weights, kF32, at.own, at.left, at.wide, after);
    if (copy != 0) StoreQuad(copy, TypeIn(kTypes, 1), at.own, at.left, at.wide, after);
}
#endif

void main() {
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        const UpdateRun run = RunOf(runs, run_count, block);
        const uint64_t first = uint64_t(block - run.first_block) * kUpdateBlock;
        const uint count = uint(min(run.count - first, uint64_t(kUpdateBlock)));
        const bool wide = kWide && run.begin % 4 == 0 && run.kept % 4 == 0;
        for (uint i = 4 * gl_LocalInvocationIndex; i < count; i += 4 * gl_WorkGroupSize.x) {
            Quad(Place(run.begin + first + i, run.kept + first + i, count - i, wide, run.l2,
                       run.decay));
        }
    }
}
