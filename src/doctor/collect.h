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

// All hosts at once, each with its own deadline, no password asked (BatchMode). What login scripts
// print before the archive is left out. Where ssh hangs it is found out whether the way loses large
// packets. kUsage where one is not a name.
Result<Collected> CollectHosts(const std::vector<std::string>& hosts,
                               const CollectOptions& options);

}  // namespace weft::doctor
