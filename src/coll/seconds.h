// Estimated time of each collective over described links: a model of the messages that the
// algorithms of this folder send, in their order.
//
// A tier is the links of one kind between the ranks of a group: within a host, or between hosts. A
// message takes latency + per_message + bytes / rate. Concurrent messages of a rank share its link,
// and the ranks of a host share the host's link. All bytes are those of the vector on one rank, in
// the wire type.
#pragma once

#include <cstddef>

#include "coll/tuning.h"

namespace weft::coll {

struct Tier {
    double bytes_per_s = 0;    // one way: of a rank within a host, of a host between hosts
    double latency_s = 0;      // from a put until the peer sees the flag
    double per_message_s = 0;  // the sender's cost per message
};

// `ranks` ranks on `hosts` hosts, equally many on each (or at most ceil(ranks / hosts)). `near`
// joins the ranks of a host, `far` the hosts.
struct TierGroup {
    int ranks = 1, hosts = 1;
    Tier near, far;
    int per_host() const { return (ranks + hosts - 1) / hosts; }
};

// kAuto: the choice of Tuning::BuiltIn for the size.
double AllReduceSeconds(const TierGroup& group, Algorithm algorithm, double bytes);
// bytes: of the whole vector over all ranks. algorithm: kHierarchical, or kAuto as above; others:
// each rank sends directly to each other.
double AllGatherSeconds(const TierGroup& group, double bytes,
                        Algorithm algorithm = Algorithm::kAuto);
// value_bytes: size of a value on the wire; sums have 4 bytes.
double ReduceScatterSeconds(const TierGroup& group, double bytes,
                            Algorithm algorithm = Algorithm::kAuto, double value_bytes = 4);
// One message between two ranks that `tier` joins.
double MessageSeconds(const Tier& tier, double bytes);

}  // namespace weft::coll
