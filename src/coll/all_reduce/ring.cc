// Partial sums travel around the ring: segment s starts at place s and is complete at place s - 1;
// then the complete segments travel around once more.
#include "coll/all_reduce/algorithms.h"

namespace weft::coll {
namespace {

Status ReduceScatterRing(const Team& team, Values data) {
    const size_t n = team.size(), next = team.Ahead(1), previous = team.Ahead(n - 1);
    for (size_t step = 0; step + 1 < n; step++) {
        WEFT_TRY(team.PostValues(next, data.Segment(n, team.Ahead(n - step))));
        const Values target = data.Segment(n, team.Ahead(2 * n - step - 1));
        std::span<const std::byte> bytes;
        WEFT_TRY(team.AwaitValues(previous, target.size(), bytes));
        target.With([&](auto some) { AddEncoded(team.wire(), bytes.data(), some); });
        WEFT_TRY(team.Release(previous));
    }
    return {};
}

// Forwards a segment's bytes unchanged, so that all ranks decode the same.
Status AllGatherRing(const Team& team, Values data) {
    const size_t n = team.size(), next = team.Ahead(1), previous = team.Ahead(n - 1);
    const Values own = data.Segment(n, next);
    std::span<const std::byte> pass_on = team.OnWire(own);
    for (size_t step = 0; step + 1 < n; step++) {
        WEFT_TRY(team.Post(next, pass_on));
        if (step > 0) {
            WEFT_TRY(team.Release(previous));
        } else {
            team.FromWire(pass_on, own);
        }
        const Values target = data.Segment(n, team.Ahead(n - step));
        WEFT_TRY(team.AwaitValues(previous, target.size(), pass_on));
        team.FromWire(pass_on, target);
    }
    return team.Release(previous);
}

}  // namespace

Status Ring(const Team& team, Values data, Values sum) {
    const size_t most = team.size() * team.MessageValues();
    return InPieces(most, data, sum, [&](Values piece) -> Status {
        WEFT_TRY(ReduceScatterRing(team, piece));
        return AllGatherRing(team, piece);
    });
}

}  // namespace weft::coll
