// Runs a step as two halves of its rows, so that one half computes during the other half's
// all-reduce.
//
// Between two sums (all_reduce), calls work row by row. Attention reads only the K and V of earlier
// rows in its own layer, and recurrent state depends only on earlier rows. So half `a`, the first
// rows, may be one sum ahead of half `b`:
//
//     compute   0a  0b  1a  1b  2a  2b ...     segment s of a half: the calls between two sums
//     wire          0a  0b  1a  1b  2a ...     its sum
//
// Segment s + 1 of a half waits for that half's sum s, which overlaps a whole segment of the other
// half. Rows keep their places in the arena, which PlanArenaInHalves plans for this. They also keep
// their bits, because a row's bits do not depend on the other rows of a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/lower.h"

namespace weft::backend {

// Calls [begin, end) that can run in halves; `sums`: indices of the all_reduces among them,
// ascending.
struct OverlapRegion {
    size_t begin = 0, end = 0;
    std::vector<size_t> sums;
};

// Finds the run of calls with the most sums in which every call can be split by rows. The result
// has no sums if there is no such run.
OverlapRegion FindOverlapRegion(const std::vector<Call>& calls);

// Some rows of a step: their sequences, the sequences with state slots, and the rows with an
// adapter.
struct HalfRows {
    int64_t begin = 0, count = 0;
    std::vector<kernels::Sequence> sequences;
    std::vector<kernels::StateSequence> states;
    std::vector<kernels::AdaptedRow> adapted;
};

// Limits `call` to `rows`. The call must be bound to a step's rows, and CanBeCut.
void ShiftRows(Call& call, const HalfRows& rows);

// The parts of `sequences` whose rows lie in [begin, begin + count).
void CutSequences(std::span<const kernels::Sequence> sequences, int64_t begin, int64_t count,
                  std::vector<kernels::Sequence>& out);
// As CutSequences. Between two parts of a sequence, the sequence's final slot holds its state.
void CutStates(std::span<const kernels::StateSequence> states, int64_t begin, int64_t count,
               std::vector<kernels::StateSequence>& out);

}  // namespace weft::backend
