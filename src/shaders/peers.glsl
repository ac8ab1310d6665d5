// Sums over the windows of a host's ranks (backend/gpu/device/peer_sums.h), in rank order.
layout(buffer_reference, std430, buffer_reference_align = 4) volatile buffer Shared {
    float at[];
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Windows {
    uint64_t at[];
};

float SumOfWindows(Windows windows, uint ranks, uint i) {
    precise float sum = Shared(windows.at[0]).at[i];
    for (uint rank = 1; rank < ranks; ++rank) sum = sum + Shared(windows.at[rank]).at[i];
    return sum;
}
