// Partners whose places differ in one bit exchange their values and add, bit by bit. Places beyond
// the largest power of two send their addend to a lower place, and get the sum from it.
#include <bit>

#include "coll/all_reduce/algorithms.h"

namespace weft::coll {
namespace {

Status Reduce(const Team& team, Values data) {
    const size_t me = team.me(), pairs = std::bit_floor(team.size()), extra = team.size() - pairs;
    if (me >= pairs) {
        WEFT_TRY(team.PostValues(me - pairs, data));
        return team.TakeValues(me - pairs, data);
    }
    const auto sum_with = [&](size_t other, std::span<const std::byte> own) {
        const int pair[] = {team.rank(std::min(me, other)), team.rank(std::max(me, other))};
        return team.Of(pair, me < other ? 0 : 1, team.wire()).Sum(data, own);
    };
    if (me < extra) WEFT_TRY(sum_with(me + pairs, team.OnWire(data)));
    for (size_t bit = 1; bit < pairs; bit *= 2) {
        const std::span<const std::byte> sent = team.OnWire(data);
        WEFT_TRY(team.Post(me ^ bit, sent));
        WEFT_TRY(sum_with(me ^ bit, sent));
    }
    if (extra == 0) return {};
    // The extra ranks get a sum that is rounded to the wire type again, so all ranks round.
    const std::span<const std::byte> sum = team.OnWire(data);
    if (me < extra) WEFT_TRY(team.Post(me + pairs, sum));
    team.FromWire(sum, data);
    return {};
}

}  // namespace

Status RecursiveDoubling(const Team& team, Values data, Values sum) {
    return InPieces(team.MessageValues(), data, sum,
                    [&](Values piece) { return Reduce(team, piece); });
}

}  // namespace weft::coll
