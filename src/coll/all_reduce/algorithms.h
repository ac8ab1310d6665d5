// The algorithms of all_reduce: a row of WEFT_ALGORITHMS (coll/tuning.h) and a file here each.
//
// team  everybody, with the wire type and the kind of values of the operation.
// data  in: this rank's addend, not empty; out: anything, unless it is `sum`.
// sum   out: the sum, in the order of additions that coll/comm.h states, the same bits on all
//       ranks: `data` itself, or as many floats for the rounded sum of doubles.
// A message holds team.MessageValues() at most: longer data go in pieces (InPieces). No algorithm
// posts more than two messages to a rank ahead of what that rank posts (coll/stream.h).
// Errors: the Team's.
#pragma once

#include "base/result.h"
#include "coll/team.h"
#include "coll/tuning.h"

namespace weft::coll {

#define WEFT_DECLARATION(name, ...) Status name(const Team& team, Values data, Values sum);
WEFT_ALGORITHMS(WEFT_DECLARATION)
#undef WEFT_DECLARATION

// Has `reduce` sum up each piece of at most `most` values in its place: Status reduce(Values).
template <typename Reduce>
Status InPieces(size_t most, Values data, Values sum, const Reduce& reduce) {
    for (size_t done = 0; done < data.size(); done += most) {
        const Values piece = data.Sub(done, most);
        WEFT_TRY(reduce(piece));
        piece.CopyTo(sum.Sub(done, most));
    }
    return {};
}

}  // namespace weft::coll
