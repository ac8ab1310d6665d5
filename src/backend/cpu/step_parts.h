// Runs a step as two to four parts of its rows, so that one part computes during the other parts'
// all-reduces.
//
// Between two sums (all_reduce ops), calls work row by row. In each layer, attention reads K and V
// of earlier rows only, and recurrent state depends on earlier rows only. So part `a`, which has
// the first rows, may be one sum ahead of part `b`:
//
//     compute   0a  0b  1a  1b  2a  2b ...     segment s of a part: the calls between two sums
//     wire          0a  0b  1a  1b  2a ...     its sum
//
// Segment s + 1 of a part waits for sum s of the same part. The sum runs while the other parts
// compute a whole segment. Segments of attention and of products take unlike times. With four
// parts, a few sums wait for the wire, so the wire stays busy during long segments. Rows have the
// same addresses in the arena as in a whole step; PlanArenaInHalves plans the arena for this.
// Results have the same bits, because a row's bits do not depend on the other rows of a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "backend/cpu/lower.h"

namespace weft::backend {

// Calls [begin, end) that can run in parts. `sums`: indices of the all_reduce calls among them,
// ascending.
struct OverlapRegion {
    size_t begin = 0, end = 0;
    std::vector<size_t> sums;
};

// Of all ranges of consecutive calls in which every call can be split by rows, returns the range
// with the most sums. The result has no sums if there is no such range.
OverlapRegion FindOverlapRegion(const std::vector<Call>& calls);

// Some rows of a step, with the parts of its sequences, of its sequences with state slots, and of
// its rows with an adapter that are among these rows.
struct PartRows {
    int64_t begin = 0, count = 0;
    std::vector<kernels::Sequence> sequences;
    std::vector<kernels::StateSequence> states;
    std::vector<kernels::AdaptedRow> adapted;
    std::vector<RowRange> prompt_rows;  // numbered from `begin`
};

// Limits `call` to `rows`. The call must be bound to a step, and CanBeCut(call) must be true.
void ShiftRows(Call& call, const PartRows& rows);

// The parts of `sequences` whose rows lie in [begin, begin + count).
void CutSequences(std::span<const kernels::Sequence> sequences, int64_t begin, int64_t count,
                  std::vector<kernels::Sequence>& out);
// As CutSequences, for sequences with state slots. If a sequence is cut in two, its slot `to` holds
// the state between the two parts.
void CutStates(std::span<const kernels::StateSequence> states, int64_t begin, int64_t count,
               std::vector<kernels::StateSequence>& out);

}  // namespace weft::backend
