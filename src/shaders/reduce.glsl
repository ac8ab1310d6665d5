// Sums and maxima over a workgroup of at most 1024 invocations, in an order that depends only on
// its size and the driver's subgroups. Every invocation must call these functions, and gets the
// result.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float reduce_parts[256];

float SumOfGroup(float value) {
    const float part = subgroupAdd(value);
    barrier();  // values of the previous call have been read
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = part;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduce_parts[i];
    return sum;
}

float MaxOfGroup(float value) {
    const float part = subgroupMax(value);
    barrier();
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = part;
    barrier();
    float most = reduce_parts[0];
    for (uint i = 1; i < gl_NumSubgroups; ++i) most = max(most, reduce_parts[i]);
    return most;
}
