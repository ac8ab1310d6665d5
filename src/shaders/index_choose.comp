// The choice of an indexer of blocks of positions; a block may be one position. If a row and head
// see more than `top` blocks, chooses the `local` last blocks and the blocks with the highest
// scores (the lower of equal ones), in ascending order. For other rows, chooses all blocks, padded
// with -1. kPositions: lists the positions of the chosen blocks, then those up to the row's own that
// are in no block yet, padded with -1. Workgroup (head, row of the turn).
//
// Finds the lowest chosen score digit by digit, from the top: among the scores that begin with the
// digits found so far, counts each next digit. Then each invocation handles a run of blocks.
#version 460
#include "floats.glsl"
#include "sequences.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 256;
layout(constant_id = 1) const bool kEnded = false;  // a row sees only blocks that end by its position
layout(constant_id = 2) const bool kPositions = false;
layout(push_constant, scalar) uniform Args {
    Floats scores;  // [rows of the turn, heads, stride]
    Ints chosen;    // [rows, heads, columns]
    Ints row_sequence;
    Sequences sequences;
    uint heads, top, block, local, stride, first_row, columns;
};

const uint kDigits = 256;
shared uint counts[kDigits];
shared uint above[kThreads], equal[kThreads];
shared uint found_digit, found_left;

// Maps floats to integers of the same order; -0 maps to 0.
uint Ordered(float value) {
    const uint bits = floatBitsToUint(value == 0.0 ? 0.0 : value);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
uint from, scored;  // first score of the row and head, and number of scores

uint Key(uint i) {
    return i < scored ? Ordered(scores.at[from + i]) : 0xffffffffu;
}

// Fills the columns of a list behind its `listed` blocks: the positions from the position of block
// `blocks` up to `position`, if requested, and -1.
void Fill(uint to, uint lane, uint listed, uint blocks, uint position) {
    const uint begin = kPositions ? listed * block : listed;
    const uint more = kPositions ? position + 1 - blocks * block : 0;
    for (uint i = begin + lane; i < columns; i += kThreads) {
        chosen.at[to + i] = i - begin < more ? int(blocks * block + i - begin) : -1;
    }
}
void List(uint to, uint place, uint number) {
    if (!kPositions) chosen.at[to + place] = int(number);
    for (uint i = 0; kPositions && i < block; ++i) {
        chosen.at[to + place * block + i] = int(number * block + i);
    }
}

void main() {
    const uint lane = gl_LocalInvocationIndex, row = first_row + gl_WorkGroupID.y;
    const uint head = gl_WorkGroupID.x;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint position = uint(sequence.position) + row - uint(sequence.row_begin);
    const uint blocks = kEnded ? (position + 1) / block : position / block + 1;
    const uint to = (row * heads + head) * columns;
    Fill(to, lane, min(blocks, top), blocks, position);
    if (blocks <= top) {
        for (uint i = lane; i < blocks; i += kThreads) List(to, i, i);
        return;
    }
    from = (gl_WorkGroupID.y * heads + head) * stride;
    scored = blocks - local;
    uint least = 0, known = 0, left = top;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (uint i = lane; i < kDigits; i += kThreads) counts[i] = 0;
        barrier();
        for (uint i = lane; i < blocks; i += kThreads) {
            const uint key = Key(i);
            if ((key & known) == least) atomicAdd(counts[key >> shift & 255u], 1);
        }
        barrier();
        if (lane == 0) {
            uint digit = 255;
            for (; counts[digit] < left; --digit) left -= counts[digit];
            found_digit = digit;
            found_left = left;
        }
        barrier();
        left = found_left;
        least |= found_digit << shift;
        known |= 255u << shift;
        barrier();
    }
    const uint run = (blocks + kThreads - 1) / kThreads;
    const uint begin = min(lane * run, blocks), end = min(begin + run, blocks);
    uint own_above = 0, own_equal = 0;
    for (uint i = begin; i < end; ++i) {
        const uint key = Key(i);
        own_above += uint(key > least);
        own_equal += uint(key == least);
    }
    above[lane] = own_above;
    equal[lane] = own_equal;
    barrier();
    uint place = 0, met = 0;  // chosen scores, and equal scores, before this run
    for (uint i = 0; i < lane; ++i) {
        place += above[i];
        met += equal[i];
    }
    place += min(met, left);
    for (uint i = begin; i < end; ++i) {
        const uint key = Key(i);
        const bool takes = key > least || (key == least && met < left);
        met += uint(key == least);
        if (takes) List(to, place++, i);
    }
}
