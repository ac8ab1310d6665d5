// Collects snapshots over ssh: runs `weft doctor --save -` on the hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct CollectOptions {
    std::string program = "weft";  // command on the hosts
    int64_t timeout_ms = 30000;    // per host
    bool measure = true;
};

// "user@host" or "host" without a worker's ":port". Errors: kUsage if the text is not a host name,
// because it becomes an argument of ssh.
Result<std::string> SshName(const std::string& host);

struct Collected {
    std::vector<std::unique_ptr<HostView>> hosts;  // hosts that answered, in the order given
    std::vector<std::string> names;                // their names as given
    std::vector<Finding> unreachable;              // one "reachable" finding for each other host
    bool tested_here = false;  // connections from and to this machine were tested
};

// Asks all hosts at once, each with its own deadline and without a password (BatchMode). Then each
// host pings the others and connects to their ports (path.h, reach.h). Skips output of login
// scripts before the archive. If ssh hangs, tests the path for lost large packets (net/path_mtu.h).
// here: this machine, whose ports are tested, too; its result becomes its answer to
// Probe("reach"). Errors: kUsage (not a host name).
Result<Collected> CollectHosts(const std::vector<std::string>& hosts, const CollectOptions& options,
                               HostView* here = nullptr);

}  // namespace weft::doctor
