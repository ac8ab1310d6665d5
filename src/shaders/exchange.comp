// An exchange with the host in the midst of a submission (backend/vulkan/gate.h): gives it `count`
// floats, waits until it opens the gate, takes the floats that it has put there. One workgroup, and
// it waits for the host alone. Where that takes more polls than the submission has left, it gives
// the submission up: the kernels behind it do nothing (guard.glsl).
#version 460
#include "head.glsl"
#extension GL_KHR_memory_scope_semantics : require

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent volatile buffer Shared {
    float at[];
};

layout(push_constant, scalar) uniform Args {
    Words gate;   // of the host: kArrived, kOpen, kGaveUp, kBase
    Words state;  // of the device: the word of the guard, polls of this submission so far
    Floats x;
    Shared to_host, from_host;
    Floats y;
    uint count, index, most_polls;
} a;

// Words of the gate, a line of the cache each.
const uint kArrived = 0, kOpen = 16, kGaveUp = 32, kBase = 48;
const uint kAtOnce = 4096;  // no loop is longer

shared bool opened;

uint Load(uint word) {
    return atomicLoad(a.gate.at[word], gl_ScopeDevice, gl_StorageSemanticsBuffer,
                      gl_SemanticsAcquire);
}
void Store(uint word, uint value) {
    atomicStore(a.gate.at[word], value, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                gl_SemanticsRelease);
}
void Fence() {
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
}

bool Await() {
    const uint number = Load(kBase) + a.index;
    Store(kArrived, number);
    const uint before = a.state.at[1];
    const uint left = a.most_polls - min(a.most_polls, before);
    uint polls = 0;
    bool open = false;
    for (uint i = 0; i < 60000 && !open && polls < left; ++i) {
        for (uint j = 0; j < kAtOnce && !open && polls < left; ++j) {
            ++polls;
            open = int(Load(kOpen) - number) >= 0;
        }
    }
    a.state.at[1] = before + polls;
    if (!open) {
        a.state.at[0] = 1;
        Store(kGaveUp, a.index);
    }
    return open;
}

void main() {
    const uint lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < a.count; i += gl_WorkGroupSize.x) a.to_host.at[i] = a.x.at[i];
    Fence();
    barrier();
    if (lane == 0) opened = Await();
    barrier();
    Fence();
    if (!opened) return;
    for (uint i = lane; i < a.count; i += gl_WorkGroupSize.x) a.y.at[i] = a.from_host.at[i];
}
