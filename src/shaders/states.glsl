// A step's sequences with their slots of recurrent state (StateEntry of dispatch.h), and the part
// of a sequence that a dispatch processes.
struct StateEntry {
    int row_begin, row_count, from, to, first_write, writes;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer States {
    StateEntry at[];
};

// Rows [begin, end) of the step. from: slot with the initial state; -1: zeros. to: slot for the
// state after the rows.
struct StatePart {
    int begin, end, from, to;
    int next, last;  // indexes of the writes
};

// The part of the sequence within `count` rows of the step from `first` on. If earlier rows of the
// sequence were processed before, the part continues from the slot `to`.
StatePart PartOf(StateEntry s, Ints writes, uint first, uint count) {
    StatePart part;
    part.begin = max(s.row_begin, int(first));
    part.end = min(s.row_begin + s.row_count, int(first + count));
    part.from = part.begin > s.row_begin ? s.to : s.from;
    part.to = s.to;
    part.next = s.first_write;
    part.last = s.first_write + s.writes;
    while (part.next < part.last && writes.at[2 * part.next] < part.begin) ++part.next;
    return part;
}

// The next slot in which the state after row `row` is stored; -1: no other.
int NextSlot(inout StatePart part, Ints writes, int row, inout bool ended) {
    if (part.next < part.last && writes.at[2 * part.next] == row) {
        return writes.at[2 * part.next++ + 1];
    }
    if (row + 1 < part.end || ended) return -1;
    ended = true;
    return part.to;
}
