// The algorithms of all_reduce: each has a row in WEFT_ALGORITHMS (coll/tuning.h) and a file in
// this folder.
//
// team  all ranks, with the wire type and value type of the operation.
// data  in: this rank's addend, not empty; out: undefined, unless `sum` is the same memory.
// sum   out: the sum, added in the order that coll/comm.h states, with the same bits on all ranks.
//       Either the same memory as `data` or, for a sum of doubles that is rounded, an equal number
//       of floats.
// A message holds at most team.MessageValues() values; longer data is sent in pieces (InPieces). No
// algorithm posts to a rank more than two messages beyond those that it has received from that rank
// (coll/stream.h). Errors: the Team's.
#pragma once

#include "base/result.h"
#include "coll/team.h"
#include "coll/tuning.h"

namespace weft::coll {

#define WEFT_DECLARATION(name, ...) Status name(const Team& team, Values data, Values sum);
WEFT_ALGORITHMS(WEFT_DECLARATION)
#undef WEFT_DECLARATION

// Calls Status reduce(Values) for each piece of at most `most` values; `reduce` works in place.
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
