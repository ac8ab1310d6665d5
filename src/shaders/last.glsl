// Finds the last of several workgroups to finish. No workgroup waits for another one.
#extension GL_KHR_memory_scope_semantics : require

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Counter {
    uint came;  // workgroups that have arrived: 0 before and after
};

shared bool came_last;

// Whether this workgroup is the last of `all` to call it. The last one sees the writes of the
// others.
bool ComesLast(uint64_t counter, uint all, uint lane) {
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
    barrier();
    if (lane == 0) {
        const uint before = atomicAdd(Counter(counter).came, 1, gl_ScopeDevice,
                                      gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
        came_last = before + 1 == all;
        if (came_last) Counter(counter).came = 0;
    }
    barrier();
    const bool last = came_last;
    if (last) {
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
    }
    return last;
}
