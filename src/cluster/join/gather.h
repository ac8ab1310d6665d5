// Connects a launcher's ranks: rank 0 listens (admission_listener.h), and the other ranks dial it.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/join/rank_registry.h"

namespace weft::cluster {

// Rank 0: waits for ranks 1 to size - 1 and gives them to `registry`. Errors: kTimeout (names the
// missing ranks), kUsage (two processes have one rank; the registry has both), kIo, kCancelled.
Status GatherRanks(int listener, int size, const Bytes& key, RankRegistry& registry,
                   const Gathering& gathering);
// Call on rank 0 if there is no job: closes the connection of each rank that dials.
void TurnRanksAway(int listener, int size, const Deadline& deadline);

// Call on the other ranks: connects to the first of rank 0's `addresses` that answers; tries until
// the deadline. Errors: kIo and kTimeout (no answer).
Result<Fd> DialRankZero(const std::vector<Address>& addresses, const Deadline& deadline);
// After DialRankZero: sends this rank's hello and waits until rank 0 admits it. A worker passes
// size = 0 and the rank that it requests; rank = 0 then means any rank. Errors: kPeerLost (rank 0
// ended, or had too many callers and dropped this one; dial again to find out), kTimeout, kDenied,
// kCorrupt.
Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline,
                          const Identity& identity = {});

// Numeric addresses by which other hosts may reach this one, IPv4 first.
std::vector<std::string> OwnAddresses();

}  // namespace weft::cluster
