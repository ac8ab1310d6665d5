// What the commands of `weft hosts` share: their flags, and what is known of a cluster's hosts.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "fleet/cluster_file.h"
#include "fleet/herald.h"

namespace weft::cli {

struct HostsFlags {
    std::string cluster = "home", key_file, ssh;
    bool measure = false, json = false;
};

// What a cable of this host's was measured to do.
struct CableSpeed {
    std::string interface, peer_address;
    double latency_us = 0, bytes_s = 0;  // one way: of 8 bytes; of large messages
    std::string transport;
    std::string failed;  // why there is no figure; "": there is
};

// What is known of a cluster's hosts.
struct HostList {
    fleet::ClusterFile file;
    fleet::SelfFacts self;
    fleet::Hearing hearing;
    std::vector<CableSpeed> speeds;  // of cables that were measured
};

// Asks on every cable who is there (fleet::kAskMs). Errors: those of the cluster's file and key.
Result<HostList> LookForHosts(const HostsFlags& flags);

// weft hosts add, weft hosts remove (hosts_change.cc). Errors: ssh's; what is wrong with the host.
Status AddHost(HostsFlags& flags);
Status RemoveHost(HostsFlags& flags);

}  // namespace weft::cli
