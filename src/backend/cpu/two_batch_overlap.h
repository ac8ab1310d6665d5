// The rows of a step in two halves, so that a sum over a slow wire goes on while the other half is
// computed.
//
// Between two sums (all_reduce) calls work row by row, and attention needs of other rows only K and
// V of earlier ones, in its own layer; so it is with recurrent state. So half `a`, the first rows,
// may be one sum ahead of half `b`:
//
//     compute   0a  0b  1a  1b  2a  2b ...     segment s of a half: the calls between two sums
//     wire          0a  0b  1a  1b  2a ...     its sum
//
// Segment s + 1 of a half waits for sum s of that half, which has had the time of a whole segment
// of the other. Rows keep their places in the arena, which is planned for it (PlanArenaInHalves),
// and their bits: a row's do not depend on the other rows of a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/lower.h"

namespace weft::backend {

// Calls [begin, end) can be run in halves; `sums` are the all_reduces among them, ascending.
struct OverlapRegion {
    size_t begin = 0, end = 0;
    std::vector<size_t> sums;
};

// The run of calls with the most sums in which every call can be cut by rows; none: no sums.
OverlapRegion FindOverlapRegion(const std::vector<Call>& calls);

// Some rows of a step: their sequences, those with their slots of state, and the rows that use an
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
// The same. Between two parts of a sequence its state is in the slot that it ends in.
void CutStates(std::span<const kernels::StateSequence> states, int64_t begin, int64_t count,
               std::vector<kernels::StateSequence>& out);

}  // namespace weft::backend
