// Gets the measured tuning table for a group's collectives from the cache of an earlier run with
// the same ranks and links, or measures it now. All ranks of the group get the same table.
//
// The cache is a file in $XDG_CACHE_HOME/weft/net (or ~/.cache), which only the group's first rank
// writes and reads. The file's name is a hash of the fingerprint: version, ranks, boot ids, links.
// The file is hostile input: an invalid file, or one with another fingerprint, counts as missing.
// The ranks check a cached table by two new measurements. If these differ from the table by more
// than a factor of three, the ranks measure a new table (coll/autotune.h). If a machine has more
// ranks than cores, measured times are meaningless, so the ranks use the built-in table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"

namespace weft::fabric {

enum class NetTable { kAuto, kOff, kRemeasure };
const char* NetTableName(NetTable mode);
// "auto", "off" or "remeasure". Errors: kUsage.
Result<NetTable> ParseNetTable(std::string_view name);

// The source of a group's table.
struct NetTableSource {
    enum Kind { kBuiltIn, kCached, kMeasured } kind = kBuiltIn;
    std::string why;   // why the table is built-in or new: "more ranks than cores"
    std::string path;  // of the cache file; "": none
    double took_ms = 0;
};

// Sets the table of `comm`, the communicator of `members` (ranks of the cluster, ascending,
// including this rank). Collective over the whole cluster: all groups, which are disjoint, call it
// at the same time.
Result<NetTableSource> TuneGroup(cluster::Cluster& cluster, coll::Comm& comm,
                                 const std::vector<int>& members, NetTable mode);

// Deletes a cached table whose predictions were wrong, so that the next run measures a new one.
void ForgetTable(const NetTableSource& source);

}  // namespace weft::fabric
