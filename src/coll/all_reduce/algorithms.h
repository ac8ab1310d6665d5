// The algorithms of all_reduce: each has a row of WEFT_ALGORITHMS (coll/tuning.h) and a file here.
//
// team  all ranks, with the wire type and value type of the operation.
// data  in: this rank's addend, not empty; out: undefined, unless it is `sum`.
// sum   out: the sum, in the order of additions of coll/comm.h, the same bits on all ranks: `data`
//       itself, or as many floats for the rounded sum of doubles.
// A message holds at most team.MessageValues(): longer data go in pieces (InPieces). No algorithm
// posts more than two messages to a rank ahead of that rank's posts (coll/stream.h). Errors: the
// Team's.
#pragma once

#include "base/result.h"
#include "coll/team.h"
#include "coll/tuning.h"

namespace weft::coll {

#define WEFT_DECLARATION(name, ...) Status name(const Team& team, Values data, Values sum);
WEFT_ALGORITHMS(WEFT_DECLARATION)
#undef WEFT_DECLARATION

// Calls `reduce` in place for each piece of at most `most` values: Status reduce(Values).
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
