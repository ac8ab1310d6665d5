// The measured table of a group's collectives: from the cache of an earlier run on the same fabric,
// or measured now; the same on all ranks of the group.
//
// The cache is a file in $XDG_CACHE_HOME/weft/net (or ~/.cache), written by the group's first rank
// and read by it alone; its name is a hash of the fingerprint: version, ranks, boot ids, links. A
// file is hostile input: what isn't a table, or another fingerprint's, is as good as none. A cached
// table is held against two sizes measured anew, and remade where it is off by more than three
// times (coll/autotune.h). Where more ranks than cores share a machine times say nothing, and the
// built-in table stays.
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

// Where a group's table came from.
struct NetTableSource {
    enum Kind { kBuiltIn, kCached, kMeasured } kind = kBuiltIn;
    std::string why;   // of a built-in or remade one, for people: "more ranks than cores"
    std::string path;  // of the cache file; "": none
    double took_ms = 0;
};

// Gives `comm`, the group of `members` (ranks of the cluster, ascending, this one among them), its
// table. Collective over the whole cluster: groups side by side do it at once, each for itself.
Result<NetTableSource> TuneGroup(cluster::Cluster& cluster, coll::Comm& comm,
                                 const std::vector<int>& members, NetTable mode);

// A cached table has shown to be wrong: the next run measures.
void ForgetTable(const NetTableSource& source);

}  // namespace weft::fabric
