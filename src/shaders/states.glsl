// A step's sequences with their slots of recurrent state (StateEntry of dispatch.h), and the part of
// one that a dispatch has.
struct StateEntry {
    int row_begin, row_count, from, to, first_write, writes;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer States {
    StateEntry at[];
};

// Rows [begin, end) of the step. `from`: the slot that they go on from, -1: zeros.
struct StatePart {
    int begin, end, from, to;
    int next, last;  // of the writes
};

// Of the step's rows from `first` on, `count` at most. What comes behind other rows goes on from the
// slot that the sequence ends in.
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

// The next slot that the state goes to after row `row`; -1: there is no other.
int NextSlot(inout StatePart part, Ints writes, int row, inout bool ended) {
    if (part.next < part.last && writes.at[2 * part.next] == row) {
        return writes.at[2 * part.next++ + 1];
    }
    if (row + 1 < part.end || ended) return -1;
    ended = true;
    return part.to;
}
