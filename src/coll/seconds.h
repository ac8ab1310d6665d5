// Estimates the time of each collective over links with given latency and bandwidth, by a model of
// the messages that the algorithms of this folder send.
//
// A tier describes the links of one kind between the ranks of a group: within a host, or between
// hosts. The time of a message is latency_s + per_message_s + bytes / bytes_per_s. Concurrent
// messages of a rank share the rank's link, and the ranks of a host share the host's link. `bytes`
// always is the size of the vector on one rank, in the wire type.
#pragma once

#include <cstddef>

#include "coll/tuning.h"

namespace weft::coll {

struct Tier {
    double bytes_per_s = 0;    // in one direction: of each rank within a host, of each host between
                               // hosts
    double latency_s = 0;      // from a put until the peer sees the flag
    double per_message_s = 0;  // the sender's cost per message
};

// A group of `ranks` ranks on `hosts` hosts, with at most ceil(ranks / hosts) ranks on each. `near`
// describes the links within a host, `far` those between hosts.
struct TierGroup {
    int ranks = 1, hosts = 1;
    Tier near, far;
    int per_host() const { return (ranks + hosts - 1) / hosts; }
};

// kAuto: the choice of Tuning::BuiltIn for the size.
double AllReduceSeconds(const TierGroup& group, Algorithm algorithm, double bytes);
// bytes: size of the whole vector with the parts of all ranks. algorithm: kHierarchical, or kAuto
// as above; with all others, each rank sends directly to each other rank.
double AllGatherSeconds(const TierGroup& group, double bytes,
                        Algorithm algorithm = Algorithm::kAuto);
// value_bytes: size of a value on the wire; sums have 4 bytes.
double ReduceScatterSeconds(const TierGroup& group, double bytes,
                            Algorithm algorithm = Algorithm::kAuto, double value_bytes = 4);
// Time of one message between two ranks over a link of this tier.
double MessageSeconds(const Tier& tier, double bytes);

}  // namespace weft::coll
