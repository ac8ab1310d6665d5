// The hosts of a cluster, for `--cluster NAME`: those that its file names, and where it names none,
// all that are heard. `weft up` runs on each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "fleet/cluster_file.h"
#include "fleet/discovery.h"
#include "net/addresses.h"

namespace weft::fleet {

// How long hosts may take to answer who asks them. A few milliseconds do on a quiet cable; an
// interface that came up with the command needs more.
inline constexpr int64_t kAskMs = 1500;

struct FoundHost {
    std::string name;
    std::string address;  // of its worker: "10.0.0.2:7000", "[fe80::1%eth1]:7000"
};

struct FoundCluster {
    std::string key_file;
    std::vector<FoundHost> hosts;            // in the order of the file, else by name
    std::vector<net::Neighbour> neighbours;  // who was heard where
    Hearing hearing;                         // empty where nobody was asked
    // That goes on hearing; null where nobody was asked.
    std::shared_ptr<const Discovery> discovery{};
};

// Where the worker of a host is called, by what is heard: by each cable to it, the best first.
std::vector<std::string> AddressesOf(const std::string& name, const Hearing& hearing);

// What of `file` and `hearing` makes the hosts; pure. Hosts of other versions are left out, with a
// reason in `left_out`. missing: hosts of the file that were not heard.
struct Chosen {
    std::vector<FoundHost> hosts;
    std::vector<std::string> left_out, missing;
};
Chosen ChooseHosts(const ClusterFile& file, const Hearing& hearing);

// That its key is here. Errors: kNotFound, with what makes one.
Status CheckHasKey(const std::string& cluster, const ClusterFile& file);

// Asks on every cable which hosts are there, for kAskMs. Errors: those of CheckHasKey and of the
// key file.
Result<Hearing> AskHosts(const std::string& cluster, const ClusterFile& file,
                         const SelfFacts& self);

// key_file: what the user named; "": the cluster's own. wait_ms: for hosts that are not there yet;
// 0: kAskMs. needed: hosts by name that count as the file's where the file names none. missing: set
// on kTimeout to the hosts that were not found. Errors: kNotFound (no key: no such cluster),
// kTimeout (no host, or not all; says which, what interfaces were asked, and who spoke with another
// key), those of the file.
Result<FoundCluster> FindCluster(const std::string& cluster, const std::string& key_file,
                                 int64_t wait_ms, const std::vector<std::string>& needed = {},
                                 std::vector<std::string>* missing = nullptr);

// The hosts of a cluster that ssh reaches, as it takes them: for `--to ssh:NAME`. Asks nobody.
// Errors: kUsage where the file names none, or one without ssh.
Result<std::vector<std::string>> SshHostsOf(const std::string& cluster);

}  // namespace weft::fleet
