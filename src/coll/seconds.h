// Seconds of each collective over links that are only described: what the algorithms of this folder
// send, in the order in which they send it.
//
// A tier is the links of one kind that join the ranks of a group: within a host, between hosts. A
// message of `bytes` over it takes latency + per_message + bytes / rate; what a rank sends to
// several others at once shares its link, and the ranks of a host share the host's link.
//
// All bytes are those of the vector on one rank, as it travels on the wire.
#pragma once

#include <cstddef>

#include "coll/tuning.h"

namespace weft::coll {

struct Tier {
    double bytes_per_s = 0;    // one way: of a rank within a host, of a host between hosts
    double latency_s = 0;      // from a put to the flag that the peer sees
    double per_message_s = 0;  // of the sender, for each message
};

// `ranks` ranks on `hosts` hosts, as many on each (or, where that is uneven, at most
// ceil(ranks / hosts)). `near` joins those of a host, `far` the hosts.
struct TierGroup {
    int ranks = 1, hosts = 1;
    Tier near, far;
    int per_host() const { return (ranks + hosts - 1) / hosts; }
};

// kAuto is what Tuning::BuiltIn chooses for the size.
double AllReduceSeconds(const TierGroup& group, Algorithm algorithm, double bytes);
// bytes: of the whole, over all ranks. algorithm: kHierarchical, or kAuto as above; any other is
// everybody straight to everybody.
double AllGatherSeconds(const TierGroup& group, double bytes,
                        Algorithm algorithm = Algorithm::kAuto);
// value_bytes: what a value travels as; sums are of 4 bytes.
double ReduceScatterSeconds(const TierGroup& group, double bytes,
                            Algorithm algorithm = Algorithm::kAuto, double value_bytes = 4);
// One message between two ranks that `tier` joins.
double MessageSeconds(const Tier& tier, double bytes);

}  // namespace weft::coll
