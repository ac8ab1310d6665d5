// Each rank sends all its data to all ranks and adds up what it receives, piece by piece: the next
// piece is in flight while one is added, so that both stay in the cache.
#include "coll/all_reduce/algorithms.h"

namespace weft::coll {
namespace {

// Between hosts, pieces stay in the cache from the socket to the sum. Over shared memory they only
// cost (256 KB in pieces of 32 KB: 37 against 30 us).
constexpr size_t kPieceAcross = size_t{128} << 10;

}  // namespace

Status OneShot(const Team& team, Values data, Values sum) {
    size_t most = team.MessageValues();
    if (team.group().across_hosts) most = std::min(most, kPieceAcross / data.value_bytes());
    const auto post = [&](Values piece, std::span<const std::byte>& sent) -> Status {
        sent = team.OnWire(piece);
        team.ExpectFromOthers(sent.size());
        return team.PostToOthers(sent);
    };
    std::span<const std::byte> sent, next_sent;
    WEFT_TRY(post(data.Sub(0, most), sent));
    for (size_t done = 0; done < data.size(); done += most) {
        const Values next = data.Sub(done + most, most);
        if (!next.empty()) WEFT_TRY(post(next, next_sent));
        WEFT_TRY(team.Sum(sum.Sub(done, most), sent));
        sent = next_sent;
    }
    return {};
}

}  // namespace weft::coll
