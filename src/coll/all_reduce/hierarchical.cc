// The ranks of a host send their addends to its lowest rank over shared memory. These lowest ranks
// sum over the links and return the sum. Only values between hosts use a narrow wire type.
#include "coll/all_reduce/algorithms.h"

namespace weft::coll {

Status Hierarchical(const Team& team, Values data, Values sum) {
    const Hosts& hosts = team.group().hosts;
    const Team host = team.Of(hosts.ours(), hosts.my_place, WireType::kFull);
    const Team leaders = team.Of(hosts.leaders, hosts.my_host, team.wire());
    return InPieces(host.MessageValues(), data, sum, [&](Values piece) -> Status {
        if (host.me() > 0) {
            WEFT_TRY(host.PostValues(0, piece));
            return host.TakeValues(0, piece);
        }
        WEFT_TRY(host.Sum(piece, piece.bytes()));
        if (leaders.size() > 1) WEFT_TRY(OneShot(leaders, piece, piece));
        return host.PostToOthers(piece.bytes());
    });
}

}  // namespace weft::coll
