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
// The words of the command line: "lat", "bw", "allreduce", ..., "table".
const char* NetOpName(NetOp op);
// Whether an op is between two ranks, and measured for every pair.
bool IsOfPairs(NetOp op);
// What an op over all ranks calls.
coll::Collective CollectiveOf(NetOp op);
// Errors: kUsage, where the op does not know the algorithm ("auto" is right for all).
Status CheckAlgorithm(NetOp op, const std::string& algorithm);

inline constexpr int64_t kMostNetBytes = int64_t{256} << 20;

inline constexpr char kNetJobKind[] = "net";

struct NetJob {
    NetOp op = NetOp::kLatency;
    std::vector<int64_t> sizes;  // bytes, 1 to kMostNetBytes
    coll::Budget budget;         // of each row
    std::vector<std::string> algorithms = {"auto"};
    std::vector<std::string> wires = {"full"};
    NetTable net_table = NetTable::kAuto;  // what an algorithm of "auto" looks into
};

std::string NetJobToJson(const NetJob& job);
// Errors: kCorrupt, naming the field.
Result<NetJob> NetJobFromJson(const std::string& text);

// One figure. Latency: `timings` of one way of a put. Bandwidth: of one put among many. Else: of
// one call on the slowest rank.
struct NetRow {
    int from = -1, to = -1;     // of a pair: who leads; else -1
    int64_t size = 0;           // bytes: of the put; of the whole vector (nccl-tests' meaning)
    std::string asked = "put";  // "auto", or what `algorithm` says
    std::string algorithm = "put", wire = "full";  // what was used
    coll::Timings timings;
    double average_bytes_s = 0, peak_bytes_s = 0, messages_s = 0;  // bandwidth only
    int64_t errors = 0;  // elements (bytes of a put) with a wrong value, over all ranks
};

struct NetReport {
    NetOp op = NetOp::kLatency;
    std::string transport;           // as the links came out: "shm", "tcp", "shm+tcp", ...
    std::vector<std::string> hosts;  // of each rank
    std::vector<std::vector<std::string>> links;  // [from][to]: the transport of that link
    cluster::LinkTable ends;                      // [from][to]: of `from`; on rank 0
    std::vector<NetRow> rows;                     // of kTable: an all-reduce of 8 KB
    std::optional<coll::Tuning> table;            // of all ranks as one group; not of pairs
    NetTableSource source;
    int ranks() const { return static_cast<int>(hosts.size()); }
};

std::string NetRowToJson(const NetRow& row);
Result<NetRow> NetRowFromJson(const std::string& text);

// Bytes a second over bytes * calls: nccl-tests' algbw; and its busbw, which is the same over what
// an ideal algorithm has to send, so that it compares with the link's speed.
double AlgorithmBandwidth(const NetRow& row);
double BusFactor(NetOp op, int ranks);

}  // namespace weft::fabric
