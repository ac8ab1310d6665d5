// Hosts that are not on this host's cables: their neighbors forward connections to them
// (cluster/worker/forwards.h). Also puts hosts into an order for a pipeline, whose stages need
// cables between consecutive hosts only.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "fleet/find.h"

namespace weft::fleet {

// The cables between hosts, by name, in both directions.
using Cabling = std::set<std::pair<std::string, std::string>>;

struct Reach {
    std::vector<FoundHost>
        hosts;  // beyond the known ones, with paths as addresses (cluster/join/dial.h)
    Cabling cables;
};

// Queries the workers of `known` hosts, and the workers of further hosts that they name, for their
// neighbors. own_name: the name of this host. Returns by the deadline, without workers that do not
// answer.
Reach ReachBeyond(const std::vector<FoundHost>& known, const std::string& own_name,
                  const Bytes& key, const Deadline& deadline);

// Sorts `hosts` so that cables join this host with the first one and each host with the next one,
// if there is such an order; else leaves them.
void OrderAlongCables(std::vector<FoundHost>& hosts, const std::string& own_name,
                      const Cabling& cables);

}  // namespace weft::fleet
