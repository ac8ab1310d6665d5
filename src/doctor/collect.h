// Hosts that are reached by ssh: `weft doctor --save -` runs there, and its snapshot comes back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
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

// All hosts at once, each with its own deadline, no password asked (BatchMode). A host that can't
// be reached is an error of its own in the result. Result i is of hosts[i].
std::vector<Result<std::unique_ptr<HostView>>> CollectHosts(const std::vector<std::string>& hosts,
                                                            const CollectOptions& options);

}  // namespace weft::doctor
