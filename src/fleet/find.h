// Finds the hosts of a cluster, for `--cluster NAME`: the hosts in the cluster's file or, if the
// file lists none, all hosts that answer, or that their neighbors name. `weft up` runs on each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "fleet/cluster_file.h"
#include "fleet/discovery.h"
#include "net/addresses.h"

namespace weft::fleet {

// Time for hosts to answer. A few milliseconds suffice on a quiet cable; an interface that comes up
// when the command starts needs more time.
inline constexpr int64_t kAskMs = 1500;

struct FoundHost {
    std::string name;
    // Address of its worker, "10.0.0.2:7000", "[fe80::1%eth1]:7000", or a path
    // (cluster/join/dial.h).
    std::string address;
    std::string via{};  // the host that forwards connections to it; "": none
};

struct FoundCluster {
    std::string key_file;
    // In the order of the file, else by name, or along the cables if these do not join all hosts.
    std::vector<FoundHost> hosts;
    std::vector<net::Neighbour> neighbours;  // hosts heard, by interface
    Hearing hearing;                         // empty: no discovery
    // The running discovery; null: no discovery.
    std::shared_ptr<const Discovery> discovery{};
};

// Addresses of a host's worker, from `hearing`: one per cable, the best first.
std::vector<std::string> AddressesOf(const std::string& name, const Hearing& hearing);

// Names of the hosts whose workers this program can use, except this host.
std::vector<std::string> HostNames(const Hearing& hearing);

// Combines `file` and `hearing` without any input or output. Leaves out hosts with other versions
// of Weft, and gives the reasons in `left_out`. missing: hosts of the file that were not heard.
struct Chosen {
    std::vector<FoundHost> hosts;
    std::vector<std::string> left_out, missing;
    std::vector<FoundHost> beyond{};  // found, but on no cable of this host (beyond.h)
};
Chosen ChooseHosts(const ClusterFile& file, const Hearing& hearing);

// Checks that this host has the cluster's key. Errors: kNotFound, with the command that makes one.
Status CheckHasKey(const std::string& cluster, const ClusterFile& file);

// Queries hosts on every cable, for kAskMs. Errors: as CheckHasKey; errors of the key file.
Result<Hearing> QueryHosts(const std::string& cluster, const ClusterFile& file,
                           const SelfFacts& self);

// key_file: path of a key file that the user chose; "": the cluster's key file. wait_ms: how long
// to wait for hosts that do not answer yet; 0: kAskMs. needed: hosts to use if the file names none.
// missing: on kTimeout, receives the hosts that were not found. beyond: whether to use hosts that
// are on no cable of this host (beyond.h). Errors: kNotFound (no key: no such cluster), kTimeout
// (no host, or not all; names the missing hosts, the interfaces that were queried, and hosts with
// another key), errors of the file.
Result<FoundCluster> FindCluster(const std::string& cluster, const std::string& key_file,
                                 int64_t wait_ms, const std::vector<std::string>& needed = {},
                                 std::vector<std::string>* missing = nullptr, bool beyond = false);

// The cluster's hosts that ssh reaches, as ssh addresses: for `--to ssh:NAME`. Sends nothing.
// Errors: kUsage: the file names no host, or one without ssh.
Result<std::vector<std::string>> SshHostsOf(const std::string& cluster);

}  // namespace weft::fleet
