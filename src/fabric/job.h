// NetJob: the measurements that all ranks make for `weft net`, and NetRow: one measured figure.
// Both travel as JSON (base/field_codec.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/links.h"
#include "coll/link_probe.h"
#include "coll/tuning.h"
#include "fabric/table.h"

namespace weft::fabric {

enum class NetOp {
    kLatency,
    kBandwidth,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kTable
};
inline constexpr std::array kNetOps{NetOp::kLatency,   NetOp::kBandwidth,     NetOp::kAllReduce,
                                    NetOp::kAllGather, NetOp::kReduceScatter, NetOp::kAllToAll,
                                    NetOp::kTable};
// The op's name on the command line: "lat", "bw", "allreduce", ..., "table".
const char* NetOpName(NetOp op);
// Whether the op runs between two ranks. An op between two ranks runs for every pair of ranks.
bool IsOfPairs(NetOp op);
// The collective that an op over all ranks measures.
coll::Collective CollectiveOf(NetOp op);
// Checks that the op has the algorithm; "auto" is valid for all ops. Errors: kUsage.
Status CheckAlgorithm(NetOp op, const std::string& algorithm);

inline constexpr int64_t kMostNetBytes = int64_t{256} << 20;

inline constexpr char kNetJobKind[] = "net";

struct NetJob {
    NetOp op = NetOp::kLatency;
    std::vector<int64_t> sizes;  // in bytes, 1 to kMostNetBytes each
    coll::Budget budget;         // time budget of each row
    std::vector<std::string> algorithms = {"auto"};
    std::vector<std::string> wires = {"full"};
    NetTable net_table = NetTable::kAuto;  // source of the tuning table by which "auto" chooses
};

std::string NetJobToJson(const NetJob& job);
// Errors: kCorrupt, naming the field.
Result<NetJob> NetJobFromJson(const std::string& text);

// One measured figure. kLatency: `timings` are times of one put, one way. kBandwidth: times of one
// put among many in flight. For other ops, `timings` are times of one call on the slowest rank.
struct NetRow {
    int from = -1, to = -1;     // ops of pairs: `from` puts first; other ops: -1
    int64_t size = 0;           // bytes of the put, or of the whole vector as nccl-tests counts it
    std::string asked = "put";  // the requested algorithm: "auto" or a name
    std::string algorithm = "put", wire = "full";  // in use
    coll::Timings timings;
    double average_bytes_s = 0, peak_bytes_s = 0, messages_s = 0;  // bandwidth only
    int64_t errors = 0;  // elements (for puts: bytes) with a wrong value, on all ranks together
};

struct NetReport {
    NetOp op = NetOp::kLatency;
    std::string transport;                        // that was used: "shm", "tcp", "shm+tcp", ...
    std::vector<std::string> hosts;               // by rank
    std::vector<std::vector<std::string>> links;  // [from][to]: transport of the link
    cluster::LinkTable ends;                      // [from][to]: end at `from`; rank 0 only
    std::vector<NetRow> rows;                     // op kTable: one row, an all-reduce of 8 KB
    std::optional<coll::Tuning> table;            // of the group of all ranks; not for ops of pairs
    NetTableSource source;
    int ranks() const { return static_cast<int>(hosts.size()); }
};

std::string NetRowToJson(const NetRow& row);
Result<NetRow> NetRowFromJson(const std::string& text);

// AlgorithmBandwidth: bytes times calls per second (algbw in nccl-tests). Multiplied by BusFactor,
// it is busbw: the rate at which each rank of an ideal algorithm would send, which can be compared
// with the link's speed.
double AlgorithmBandwidth(const NetRow& row);
double BusFactor(NetOp op, int ranks);

}  // namespace weft::fabric
