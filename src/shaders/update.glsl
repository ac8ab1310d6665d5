// Runs of elements of an update (lower/update.cc), divided into blocks of kUpdateBlock, which
// workgroups process one at a time.
struct UpdateRun {
    uint64_t begin, kept, count;  // in elements: start in the rank's own shard; start in the
                                  // optimizer state; number
    uint first_block;
    float l2, decay;
    uint none;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer UpdateRuns {
    UpdateRun at[];
};
layout(constant_id = 3) const uint kUpdateBlock = 4096;

// The run that contains a block: the last one that does not begin after it.
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
