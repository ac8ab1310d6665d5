// Rendezvous of a launcher's ranks: rank 0 listens (admission_listener.h), the others dial it.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/rank_registry.h"

namespace weft::cluster {

// Rank 0: waits for ranks 1 to size - 1 and gives them to `registry`. Errors: kTimeout (names the
// missing ranks), kIo, kCancelled.
Status GatherRanks(int listener, int size, const Bytes& key, RankRegistry& registry,
                   const Gathering& gathering);
// Rank 0 has no job for the ranks: hangs up on each when it dials.
void TurnRanksAway(int listener, int size, const Deadline& deadline);

// Other ranks: connects to the first of rank 0's `addresses` that answers; tries until the
// deadline. Errors: kIo and kTimeout (no answer).
Result<Fd> DialRankZero(const std::vector<Address>& addresses, const Deadline& deadline);
// After DialRankZero: sends this rank's hello (size 0: a worker that asks for this rank; rank 0:
// any) and waits until rank 0 admits it. Errors: kPeerLost (rank 0 ended, or dropped this
// connection among many; dialing again tells which), kTimeout, kDenied, kCorrupt.
Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline,
                          const Identity& identity = {});

// Numeric addresses by which other hosts may reach this one, IPv4 first.
std::vector<std::string> OwnAddresses();

}  // namespace weft::cluster
