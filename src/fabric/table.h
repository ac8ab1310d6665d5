// The measured tuning table of a group's collectives: from the cache of an earlier run on the same
// fabric, or measured now. All ranks of the group get the same table.
//
// The cache is a file in $XDG_CACHE_HOME/weft/net (or ~/.cache), which only the group's first rank
// writes and reads. Its name is a hash of the fingerprint: version, ranks, boot ids, links. The
// file is hostile input: an invalid file, or one with another fingerprint, counts as missing. Two
// new measurements check a cached table; if they differ from it by more than a factor of three, the
// ranks measure a new table (coll/autotune.h). If a machine has more ranks than cores, times are
// meaningless and the built-in table stays.
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

// Origin of a group's table.
struct NetTableSource {
    enum Kind { kBuiltIn, kCached, kMeasured } kind = kBuiltIn;
    std::string why;   // reason for a built-in or new table, in words: "more ranks than cores"
    std::string path;  // of the cache file; "": none
    double took_ms = 0;
};

// Sets the table of `comm`, the group of `members` (ranks of the cluster, ascending, with this
// one). Collective over the whole cluster: disjoint groups run at the same time.
Result<NetTableSource> TuneGroup(cluster::Cluster& cluster, coll::Comm& comm,
                                 const std::vector<int>& members, NetTable mode);

// Deletes a cached table that proved wrong, so that the next run measures.
void ForgetTable(const NetTableSource& source);

}  // namespace weft::fabric
