// Collects snapshots over ssh: runs `weft doctor --save -` on the hosts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"
#include "net/path_mtu.h"

namespace weft::doctor {

struct CollectOptions {
    std::string program = "weft";  // command that runs weft on the hosts
    int64_t timeout_ms = 30000;    // per host
    bool measure = true;
    bool with_here = false;  // this machine is one of the hosts that are checked
};

// Removes the ":port" of a worker: returns "user@host" or "host". Errors: kUsage if this is not a
// host name, since it becomes an argument of ssh.
Result<std::string> SshName(const std::string& host);

// The path to a host, if it loses large packets. address: as ssh resolves the host's name.
struct LossyPath {
    std::string address;
    net::PathMtu mtu;
};
// The finding of "reachable" on a host that ssh did not reach because of `error`. lost: the likely
// reason, if large packets are lost on the way.
Finding Unreachable(const std::string& host, const Error& error,
                    const std::optional<LossyPath>& lost);

// Runs `command` on the host over ssh and returns its standard output, without the output of login
// scripts. name: from SshName. Errors: why ssh or the command failed.
Result<std::string> RunOverSsh(const std::string& name, const std::string& command,
                               const Deadline& deadline, size_t most_bytes);

struct Collected {
    std::vector<std::unique_ptr<HostView>> hosts;  // hosts that answered, in the argument's order
    std::vector<std::string> names;                // of `hosts`, as in the argument
    std::vector<Finding> unreachable;              // a finding of "reachable" for each other host
    bool tested_here = false;  // whether connections from and to this machine were tested
};

// Requests the snapshots of all hosts at once, each with its own deadline. ssh never asks for a
// password (BatchMode). Output of login scripts before the snapshot is skipped. Then each host
// pings the others and connects to their ports (network.h, reach.h). If ssh to a host hangs, tests
// whether large packets are lost on the way (net/path_mtu.h). here: this machine. Its ports are
// tested, too, and the result becomes its answer to Probe("reach"). Errors: kUsage (not a host
// name), kIo (threads).
Result<Collected> CollectHosts(const std::vector<std::string>& hosts, const CollectOptions& options,
                               HostView* here = nullptr);

}  // namespace weft::doctor
