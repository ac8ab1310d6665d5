// A step's sequences, and its blocks of rows (SequenceEntry and BlockEntry of dispatch.h).
struct SequenceEntry {
    int row_begin, row_count, position, first_page, adapter;
};
struct BlockEntry {
    int sequence, row_begin, row_count;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Sequences {
    SequenceEntry at[];
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Blocks {
    BlockEntry at[];
};
