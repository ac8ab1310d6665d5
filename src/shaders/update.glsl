// Runs of elements that an update works on (lower_update.cc), cut into blocks of kUpdateBlock: a
// workgroup takes a block at a time.
struct UpdateRun {
    uint64_t begin, kept, count;  // elements: of the unit's own part, of what is kept, how many
    uint first_block;
    float l2, decay;
    uint none;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer UpdateRuns {
    UpdateRun at[];
};
layout(constant_id = 3) const uint kUpdateBlock = 4096;

// The run that a block is in: the last one that does not begin behind it.
UpdateRun RunOf(UpdateRuns runs, uint count, uint block) {
    uint begin = 0, end = count;
    while (end - begin > 1) {
        const uint middle = (begin + end) / 2;
        if (runs.at[middle].first_block <= block) {
            begin = middle;
        } else {
            end = middle;
        }
    }
    return runs.at[begin];
}
