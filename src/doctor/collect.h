// Hosts that are reached by ssh: `weft doctor --save -` runs there, and its snapshot comes back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct CollectOptions {
    std::string program = "weft";  // on the hosts
    int64_t timeout_ms = 30000;    // for each host
    bool measure = true;
};

// "user@host" or "host"; a ":port" that a worker listens on is left out. kUsage where it is not
// a name: it becomes a word of ssh's command line.
Result<std::string> SshName(const std::string& host);

struct Collected {
    std::vector<std::unique_ptr<HostView>> hosts;  // that answered, in the order asked for
    std::vector<std::string> names;                // of these, as they were asked for
    std::vector<Finding> unreachable;              // one for each of the others, "reachable"
};

// Asks all hosts at once, each with its own deadline and without a password (BatchMode); then each
// host pings the others and connects to their ports (path.h, reach.h). Output of login scripts
// before the archive is skipped. If ssh hangs, the path is tested for lost large packets. Errors:
// kUsage (not a host's name).
Result<Collected> CollectHosts(const std::vector<std::string>& hosts,
                               const CollectOptions& options);

}  // namespace weft::doctor
