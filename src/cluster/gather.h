// How the ranks that a launcher started find each other: rank 0 listens, the others dial it.
//
//     any rank -> rank 0     magic, its rank, the size, its host's name     (80 bytes, unproved)
//     then the handshake of handshake.h, in which rank 0 is the caller as ever
//
// Whoever does not prove the key within two seconds is dropped, and at most 64 such callers (and
// one for each rank) are kept at once, so strangers can delay nobody for long (crowd.h); a rank
// that was dropped among them dials again. What a rank says of itself before the proof is checked
// after it: its assignment must name the rank that its launcher gave it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "cluster/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

struct Arrival {
    Fd fd;
    Session session;
    std::string host;  // the name it gives itself
};

// Rank 0: waits for ranks 1 to size - 1; result[r - 1] is rank r. Errors: kTimeout (names the ranks
// that are missing), kIo, kCancelled (*stop became true; null: nobody asks).
Result<std::vector<Arrival>> GatherRanks(int listener, int size, const Bytes& key,
                                         int64_t timeout_ms, const Deadline& deadline,
                                         const std::atomic<bool>* stop = nullptr);
// Rank 0 has no job for them: each comes to meet it, and is hung up on.
void TurnRanksAway(int listener, int size, const Deadline& deadline);

// The others: a connection to one of `addresses` (of rank 0; the first that answers), tried until
// the deadline. Errors: kIo and kTimeout (nobody there).
Result<Fd> DialRankZero(const std::vector<Address>& addresses, const Deadline& deadline);
// Then says who it is and waits for rank 0 to begin a job. Errors: kPeerLost (rank 0 ended, or it
// dropped this connection amid a crowd: dialling again tells), kTimeout, kDenied, kCorrupt.
Result<Arrival> ProveRank(Fd fd, int rank, int size, const Bytes& key, const Deadline& deadline);

// Numeric addresses under which other hosts may reach this one, IPv4 first.
std::vector<std::string> OwnAddresses();

}  // namespace weft::cluster
