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
// The command line's words: "lat", "bw", "allreduce", ..., "table".
const char* NetOpName(NetOp op);
// Whether an op is between two ranks; it then runs for every pair.
bool IsOfPairs(NetOp op);
// The collective of an op over all ranks.
coll::Collective CollectiveOf(NetOp op);
// Errors: kUsage: the op does not have the algorithm ("auto" is valid for all).
Status CheckAlgorithm(NetOp op, const std::string& algorithm);

inline constexpr int64_t kMostNetBytes = int64_t{256} << 20;

inline constexpr char kNetJobKind[] = "net";

struct NetJob {
    NetOp op = NetOp::kLatency;
    std::vector<int64_t> sizes;  // bytes, 1 to kMostNetBytes
    coll::Budget budget;         // per row
    std::vector<std::string> algorithms = {"auto"};
    std::vector<std::string> wires = {"full"};
    NetTable net_table = NetTable::kAuto;  // source of the table for an algorithm of "auto"
};

std::string NetJobToJson(const NetJob& job);
// Errors: kCorrupt, naming the field.
Result<NetJob> NetJobFromJson(const std::string& text);

// One figure. `timings` are those of one put, one way (kLatency); of one put among many in flight
// (kBandwidth); or of one call on the slowest rank (other ops).
struct NetRow {
    int from = -1, to = -1;     // of a pair: `from` leads; else -1
    int64_t size = 0;           // bytes of the put, or of the whole vector (as in nccl-tests)
    std::string asked = "put";  // "auto", or the name of an algorithm
    std::string algorithm = "put", wire = "full";  // in use
    coll::Timings timings;
    double average_bytes_s = 0, peak_bytes_s = 0, messages_s = 0;  // bandwidth only
    int64_t errors = 0;  // elements (bytes of a put) with a wrong value, on all ranks
};

struct NetReport {
    NetOp op = NetOp::kLatency;
    std::string transport;           // in use: "shm", "tcp", "shm+tcp", ...
    std::vector<std::string> hosts;  // by rank
    std::vector<std::vector<std::string>> links;  // [from][to]: transport of the link
    cluster::LinkTable ends;                      // [from][to]: end at `from`; on rank 0
    std::vector<NetRow> rows;                     // kTable: an all-reduce of 8 KB
    std::optional<coll::Tuning> table;            // of all ranks as one group; not for pairs
    NetTableSource source;
    int ranks() const { return static_cast<int>(hosts.size()); }
};

std::string NetRowToJson(const NetRow& row);
Result<NetRow> NetRowFromJson(const std::string& text);

// AlgorithmBandwidth: bytes * calls per second, nccl-tests' algbw. Times BusFactor, it is busbw:
// the rate at which an ideal algorithm would send, which can be compared with the link's speed.
double AlgorithmBandwidth(const NetRow& row);
double BusFactor(NetOp op, int ranks);

}  // namespace weft::fabric
