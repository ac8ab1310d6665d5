// The `count` best of up to 2,048 values per workgroup, in order: NaN first, then the largest
// value; among equals, the lower index first. Input is a row, or the choices of an earlier stage's
// workgroups; the last stage, a single workgroup, writes values and indices. Workgroup (part of a
// row, row).
//
// A value and its index form one number, which is larger for a better value: the float's bits
// mapped to ordered integers, then the inverted index. No two numbers are equal, so any sorting
// method gives the same result.
#version 460
#include "floats.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool kFromRow = true;
layout(constant_id = 2) const bool kLast = true;
layout(constant_id = 3) const bool kOne = false;  // count is 1: no sort needed
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Ranks { uint64_t at[]; };
struct Candidate {
    float value;
    uint index;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) writeonly buffer Candidates {
    Candidate at[];
};
layout(push_constant, scalar) uniform Args {
    Floats row;
    Ranks from, to;
    Candidates chosen;
    uint items, count;  // items: in the row, or in `from`
    uint stride;        // from one row to the next
};

const uint kItems = 2048;  // per workgroup
shared uint64_t ranks[kItems];

uint64_t RankOf(uint i) {
    if (i >= items) return 0;  // worse than any other
    if (!kFromRow) return from.at[gl_WorkGroupID.y * items + i];
    const float value = row.at[gl_WorkGroupID.y * stride + i];
    uint bits = floatBitsToUint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        bits = 0xffffffffu;
    } else if ((bits & 0x7fffffffu) == 0) {
        bits = 0x80000000u;  // -0 counts as 0
    } else {
        bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    }
    return uint64_t(bits) << 32 | uint64_t(~i);
}

// Bitonic sort (Batcher 1968), the best first.
void Sort() {
    for (uint size = 2; size <= kItems; size *= 2) {
        for (uint apart = size / 2; apart > 0; apart /= 2) {
            barrier();
            for (uint i = gl_LocalInvocationIndex; i < kItems / 2; i += gl_WorkGroupSize.x) {
                const uint low = i / apart * apart * 2 + i % apart;
                const uint64_t a = ranks[low], b = ranks[low + apart];
                const bool falls = (low & size) == 0;
                if ((a < b) == falls) {
                    ranks[low] = b;
                    ranks[low + apart] = a;
                }
            }
        }
    }
    barrier();
}

void FindBest() {
    for (uint half_size = kItems / 2; half_size > 0; half_size /= 2) {
        barrier();
        for (uint i = gl_LocalInvocationIndex; i < half_size; i += gl_WorkGroupSize.x) {
            ranks[i] = max(ranks[i], ranks[i + half_size]);
        }
    }
    barrier();
}

void main() {
    const uint begin = gl_WorkGroupID.x * kItems;
    for (uint i = gl_LocalInvocationIndex; i < kItems; i += gl_WorkGroupSize.x) {
        ranks[i] = RankOf(begin + i);
    }
    if (kOne) {
        FindBest();
    } else {
        Sort();
    }
    const uint place = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * count;
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
        if (!kLast) {
            to.at[place + i] = ranks[i];
        } else {
            const uint index = ~uint(ranks[i]);
            chosen.at[place + i] = Candidate(row.at[gl_WorkGroupID.y * stride + index], index);
        }
    }
}
