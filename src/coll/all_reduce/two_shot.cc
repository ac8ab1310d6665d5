// Each rank sums one segment, then sends the sum to all.
#include "coll/all_reduce/algorithms.h"

namespace weft::coll {

Status TwoShot(const Team& team, Values data, Values sum) {
    const size_t n = team.size();
    return InPieces(n * team.MessageValues(), data, sum, [&](Values piece) -> Status {
        const auto segment = [&](size_t place) { return piece.Segment(n, place); };
        for (size_t step = 1; step < n; step++) {
            const size_t place = team.Ahead(step);
            WEFT_TRY(team.PostValues(place, segment(place)));
        }
        const Values own = segment(team.me());
        WEFT_TRY(team.Sum(own, team.OnWire(own)));
        const std::span<const std::byte> bytes = team.OnWire(own);
        WEFT_TRY(team.PostToOthers(bytes));
        team.FromWire(bytes, own);
        for (size_t step = 1; step < n; step++) {
            const size_t place = team.Ahead(step);
            WEFT_TRY(team.TakeValues(place, segment(place)));
        }
        return {};
    });
}

}  // namespace weft::coll
