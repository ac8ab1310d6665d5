// How the ranks that a launcher started find each other: rank 0 listens (admission_listener.h), the
// others dial it.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/rank_registry.h"

namespace weft::cluster {

// Rank 0: waits for ranks 1 to size - 1, who go to `registry`. Errors: kTimeout (names the ranks
// that are missing), kIo, kCancelled.
Status GatherRanks(int listener, int size, const Bytes& key, RankRegistry& registry,
                   const Gathering& gathering);
// Rank 0 has no job for them: each comes to meet it, and is hung up on.
void TurnRanksAway(int listener, int size, const Deadline& deadline);

// The others: a connection to one of `addresses` (of rank 0; the first that answers), tried until
// the deadline. Errors: kIo and kTimeout (nobody there).
Result<Fd> DialRankZero(const std::vector<Address>& addresses, const Deadline& deadline);
// Then says who it is (size 0: a worker, which asks for this rank; 0: any) and waits for rank 0 to
// take it in. Errors: kPeerLost (rank 0 ended, or it
// dropped this connection amid a crowd: dialling again tells), kTimeout, kDenied, kCorrupt.
Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline,
                          const Identity& identity = {});

// Numeric addresses under which other hosts may reach this one, IPv4 first.
std::vector<std::string> OwnAddresses();

}  // namespace weft::cluster
