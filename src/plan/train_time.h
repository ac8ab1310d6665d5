// Seconds of one op of a training step on a device and of transfers over described links, by cause.
//
// A product of m x n outputs, each a sum over k, takes
//     2 m n k / products * (1 + kEdge / k) * (1 + in_flight / (2 m n)),   or its bytes if those
// take longer. A tile of outputs is started and written once for all of its k, and the last wave of
// tiles is half full on average. Attention has a rate of its own, lower for short sequences. The
// time of other ops is their bytes over the memory's bandwidth. If the machine has measured tables
// of training in that dtype (plan/measured.h), they replace these rates.
#pragma once

#include <cstdint>
#include <span>

#include "coll/seconds.h"
#include "plan/machine.h"
#include "plan/weft_rates.h"
#include "program/cost.h"

namespace weft::plan {

// Share of a link's data-sheet bandwidth that collectives reach, apart from their latency.
inline constexpr double kLinkShare = 0.78;
// Columns that a tile could add up while it is begun and written.
inline constexpr double kEdge = 128;
// Sequence length at which fused attention has half of its rate.
inline constexpr double kShortSequence = 400;
// Rate of products of float32 operands, as a share of BF16's. Guessed.
inline constexpr double kSingleShare = 0.5;
// Share of arithmetic speed lost while transfers run, because device copies occupy compute units.
inline constexpr double kContention = 0.15;

struct DeviceRates {
    double products = 0, attention = 0;  // FLOP/s
    double memory = 0;                   // bytes/s
    double in_flight = 0;                // outputs of products computed at a time
    double op_s = 0;                     // seconds to start an op; 0 on a processor's own threads
    double room = 0;                     // bytes
};
// Uses the machine file's shares if it has them, else Weft's (plan/weft_rates.h).
DeviceRates RatesOf(const Machine& machine);
// The machine's measured tables for training in `dtype`; null: none.
const TrainingRates* MeasuredTraining(const Machine& machine, DType dtype);

// Seconds of an update, by cause.
struct TrainSeconds {
    double products = 0, attention = 0;
    double memory = 0;      // norms, gates, sums: reading and writing
    double launch = 0;      // starting ops, if the device waits for it
    double tensor = 0;      // collectives of tensor ranks
    double shares = 0;      // gradients and weights over replicas, the part not hidden by compute
    double hops = 0;        // messages between stages that a stage waits for
    double bubble = 0;      // the pipeline fills, drains, or has slower stages
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

// Bytes that the optimizer touches per element of a matrix: its state, the weight, the gradient.
constexpr double TouchedBytes(double weight, double gradient, double kept) {
    return 2 * kept + weight + 2 * gradient;
}

// Seconds of collectives: measured, or predicted from Weft's algorithms and the links.
struct Collectives {
    const Measured* measured = nullptr;  // of as many ranks as a group has; may be null
    double AllReduce(const coll::TierGroup& group, double bytes) const;
    // bytes: size of the whole value; value_bytes: size of one element on the wire.
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
// Time of ops [begin, end), without messages between stages.
OpsSeconds TimeOps(const program::Program& list, std::span<const program::OpCost> costs,
                   size_t begin, size_t end, const TrainPlace& place);

// Costs of a list for micro_batch sequences. Each sequence attends only to itself.
std::vector<program::OpCost> TrainCosts(const program::Program& list, int64_t sequence,
                                        int64_t micro_batch);

}  // namespace weft::plan
