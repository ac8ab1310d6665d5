// Seconds of one op of a training step on a device, of transfers over described links, and what
// they are spent on.
//
// A product of m x n outputs, each a sum over k, takes
//     2 m n k / products * (1 + kEdge / k) * (1 + in_flight / (2 m n)),   or its bytes if those
// take longer: a tile of outputs is begun and written once for all of its k, and the last wave of
// tiles is half full on average. Attention's rate is its own, and short sequences have less of it.
// What is neither is read and written at the memory's bandwidth. Where the machine has measured
// tables of training in that type (plan/measured.h), an op takes what they say.
#pragma once

#include <cstdint>
#include <span>

#include "coll/seconds.h"
#include "plan/machine.h"
#include "plan/train_style.h"
#include "program/cost.h"

namespace weft::plan {

// Of a device that a machine file says nothing else of; what docs/plan.md calls fitted is in files.
inline constexpr double kProductShare = 0.6;    // of its compute: large products. Guessed
inline constexpr double kAttentionShare = 0.3;  // fused attention over long sequences. Guessed
// A link's part of its data sheet, collectives' beside their latency: 235 of 300 GB/s are common.
inline constexpr double kLinkShare = 0.78;
// Columns that a tile could add up while it is begun and written.
inline constexpr double kEdge = 128;
// Rows of a sequence with which fused attention has half of its rate.
inline constexpr double kShortSequence = 400;
// Between two ops of a device with links of its own.
inline constexpr double kGap = 1.5e-6;
// Of a data sheet's FP8 what products reach, beside what those in BF16 reach of theirs. Fitted.
inline constexpr double kEightBitShare = 0.85;
// Products of float32 operands, beside those of BF16: TF32's on NVIDIA's tensor cores (data sheets
// of A100 to B200), which PyTorch takes where it is told to. Guessed of others.
inline constexpr double kSingleShare = 0.5;
// A part of the arithmetic's rate that transfers beside it take: blocks of the device copy.
inline constexpr double kContention = 0.15;

struct DeviceRates {
    double products = 0, attention = 0;  // FLOP/s
    double eight = 0;                    // of products in FP8; 0: the device has none
    double memory = 0;                   // bytes/s
    double in_flight = 0;                // outputs of products that are computed at a time
    double gap_s = 0;                    // between two ops
    double room = 0;                     // bytes
};
DeviceRates RatesOf(const Machine& machine);
// Its tables for what `style` trains in that type; null: there are none.
const TrainingRates* MeasuredTraining(const Machine& machine, const TrainStyle& style, DType dtype);

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

// Collectives of a program that trains: Weft's own algorithms, or rings.
struct Collectives {
    bool rings = false;
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
    const TrainStyle* style = nullptr;
    Collectives collectives;
    coll::TierGroup tensor, context;  // ranks that share a product, and a sequence
    // Rows of a sequence on this rank: all, but for those on the other context ranks.
    int64_t sequence = 1, micro_batch = 1;
    const TrainingRates* rates = nullptr;  // measured ones win; null: there are none
    bool eight_bit = false;                // products but the logits' are in FP8
};

// Ops [begin, end) of a list, messages between stages left out. scores: what attention writes in
// `--as` programs that keep scores, which is also part of `all`.
struct OpsSeconds {
    TrainSeconds all;
    double scores = 0;
    double flops = 0;
};
OpsSeconds TimeOps(const program::Program& list, std::span<const program::OpCost> costs,
                   size_t begin, size_t end, const TrainPlace& place);

// The costs of a list for micro_batch sequences, each of which attends to itself alone.
std::vector<program::OpCost> TrainCosts(const program::Program& list, int64_t sequence,
                                        int64_t micro_batch);

}  // namespace weft::plan
