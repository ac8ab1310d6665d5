// Seconds of one op of a training step on a device, of transfers over described links, and what
// they are spent on.
//
// A product of m x n outputs, each a sum over k, takes
//     2 m n k / products * (1 + kEdge / k) * (1 + in_flight / (2 m n)),   or its bytes if those
// take longer: a tile of outputs is begun and written once for all of its k, and the last wave of
// tiles is half full on average. Attention has a rate of its own, which short sequences lower.
// Other ops take their bytes. Where the machine has measured tables of training in that type
// (plan/measured.h), they replace these rates.
#pragma once

#include <cstdint>
#include <span>

#include "coll/seconds.h"
#include "plan/machine.h"
#include "plan/weft_rates.h"
#include "program/cost.h"

namespace weft::plan {

// Share of a link's data sheet that collectives reach, beside their latency.
inline constexpr double kLinkShare = 0.78;
// Columns that a tile could add up while it is begun and written.
inline constexpr double kEdge = 128;
// Rows of a sequence with which fused attention has half of its rate.
inline constexpr double kShortSequence = 400;
// Rate of products of float32 operands, as a share of BF16's. Guessed.
inline constexpr double kSingleShare = 0.5;
// Share of the arithmetic's rate that transfers beside it take: blocks of the device copy.
inline constexpr double kContention = 0.15;

struct DeviceRates {
    double products = 0, attention = 0;  // FLOP/s
    double memory = 0;                   // bytes/s
    double in_flight = 0;                // outputs of products that are computed at a time
    double op_s = 0;                     // of starting an op; 0 on a processor's own threads
    double room = 0;                     // bytes
};
// From the machine file's shares, else Weft's (plan/weft_rates.h).
DeviceRates RatesOf(const Machine& machine);
// The machine's tables for training in that type; null: it has none.
const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype);

// Seconds, by what they are spent on; all of an update together.
struct TrainSeconds {
    double products = 0, attention = 0;
    double memory = 0;      // norms, gates, sums: reading and writing
    double launch = 0;      // starting ops, where the device waits for that
    double tensor = 0;      // collectives of tensor ranks
    double shares = 0;      // gradients and weights over replicas, as far as they are waited for
    double hops = 0;        // messages between stages that a stage waits for
    double bubble = 0;      // a pipeline that fills, empties, or has slower stages
    double update = 0;      // the optimizer
    double stragglers = 0;  // the slowest of many ranks
    double total() const;
    TrainSeconds& operator+=(const TrainSeconds& other);
    TrainSeconds operator*(double factor) const;
};
struct TrainSecondsRow {
    const char* name;
    double TrainSeconds::*seconds;
};
std::span<const TrainSecondsRow> TrainSecondsRows();  // in the order of the struct

// Of an element of a matrix in the optimizer: what it keeps and the weight, and its gradient.
constexpr double TouchedBytes(double weight, double gradient, double kept) {
    return 2 * kept + weight + 2 * gradient;
}

// Seconds of collectives: measured, or of Weft's algorithms over described links.
struct Collectives {
    const Measured* measured = nullptr;  // of as many ranks as a group has; may be null
    double AllReduce(const coll::TierGroup& group, double bytes) const;
    // bytes: of the whole; value_bytes: what a value travels as.
    double Gather(const coll::TierGroup& group, double bytes) const;
    double ReduceScatter(const coll::TierGroup& group, double bytes, double value_bytes) const;

  private:
    using Seconds = std::optional<double> (Measured::*)(int of_ranks, double bytes) const;
    std::optional<double> Known(Seconds seconds, const coll::TierGroup& group, double bytes) const {
        if (measured == nullptr || group.ranks < 2) return std::nullopt;
        return (measured->*seconds)(group.ranks, bytes);
    }
};

// Where ops run.
struct TrainPlace {
    DeviceRates device;
    Collectives collectives;
    coll::TierGroup tensor;  // ranks that share a product
    int64_t sequence = 1, micro_batch = 1;
    const TrainingRates* rates = nullptr;  // measured tables; may be null
};

struct OpsSeconds {
    TrainSeconds all;
    double flops = 0;
};
// Ops [begin, end) of a list, without messages between stages.
OpsSeconds TimeOps(const program::Program& list, std::span<const program::OpCost> costs,
                   size_t begin, size_t end, const TrainPlace& place);

// The costs of a list for micro_batch sequences, each of which attends to itself alone.
std::vector<program::OpCost> TrainCosts(const program::Program& list, int64_t sequence,
                                        int64_t micro_batch);

}  // namespace weft::plan
