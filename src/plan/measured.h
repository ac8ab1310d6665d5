// Measured tables of a cluster. They take precedence over rates computed from bandwidths and fixed
// times. They are the member "measured" of a machine file (`weft plan --measure` writes it):
//     ranks       tensor ranks of the measurement
//     cores       ranks of a host that have cores of their own (default: all its devices)
//     products    {"Q4_0": {"1": "90 GFLOP/s", "64": ..}}: by type of the weights and rows
//     experts     the same for products of experts, by the rows of each expert that has any
//     cache       bytes/s of the KV cache read by attention of one row
//     scores      FLOP/s of attention of one row, whose seconds are added to those of cache; left
//                 out: cache covers both
//     positions   fixed time of attention, in extra positions (0)
//     attention   FLOP/s of attention of many rows
//     kv          {"Q8_0": {"cache": .., "attention": ..}}: these two by type of the cache
//     op          fixed seconds of an op other than a product
//     rest        bytes/s of such ops with many rows (default: the memory's bandwidth)
//     step        fixed seconds of a step
//     alone       any of products, experts, cache, scores, positions, attention, kv, op, rest and
//                 step for a rank that computes while the others wait, as stages do
//     sync        seconds that an all-reduce within a step takes beyond all_reduce
//     turns       {"1": 0.6, ..}: if ranks share cores: seconds of a step's ops as a share of
//                 its wall time, by rows (1)
//     hop         fixed seconds of a message between stages, beyond the link's time
//     all_reduce  {"8192": "12 us", ..}: by bytes of the vector
//     all_gather, reduce_scatter   the same, by bytes of the whole value
//     training    {"BF16": {"ops": .., "update": .., "step": ..}}, by compute dtype:
//         ops     {"mat_mul": {"512": "300 GFLOP/s"}, "rms_norm": {"512": "4 GB/s"}, ..}: by op and
//                 rows (for experts: of one expert; for attention: of one sequence): FLOP/s of
//                 products and attention, bytes/s of other ops
//         update  bytes/s that the optimizer reads and writes
//         step    fixed seconds of an update
// cache, scores, attention, op, rest, step, update, sync and hop are figures with marks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/figure.h"
#include "program/ops.h"
#include "tensor/dtype.h"

namespace weft::plan {

// Rates of a rank's ops in a step.
struct MeasuredRates {
    // By rows or bytes, ascending. Values: FLOP/s of products, seconds of collectives.
    using Curve = std::map<double, double>;
    struct Cache {
        Figure cache, attention;
    };

    std::map<DType, Curve> products, experts;
    Figure cache, attention, op, step;
    std::map<DType, Cache> kv;
    std::optional<Figure> rest, scores;
    int positions = 0;

    // FLOP/s of a product with this weight type and number of rows. Interpolates logarithmically
    // between measured rows; outside of them uses the nearest one. nullopt: the type was not
    // measured, or only at far fewer rows.
    std::optional<double> ProductFlops(DType type, double rows) const;
    // As above for an expert with this number of rows; without expert measurements, as
    // ProductFlops.
    std::optional<double> ExpertFlops(DType type, double rows) const;
    // Rate for a cache of this type; if it was not measured, `cache`.
    double CacheRate(DType type) const;
    double AttentionFlops(DType type) const;
};

// Rates of a rank's ops in training.
struct TrainingRates {
    // FLOP/s of ops with Trait::kByFlops, bytes/s of other ops.
    std::map<program::OpKind, MeasuredRates::Curve> ops;
    Figure update, step;
    // Rate at this number of rows; nullopt: the op was not measured.
    std::optional<double> Rate(program::OpKind kind, double rows) const;
};

struct Measured : MeasuredRates {
    int ranks = 1;
    std::optional<int> cores;
    std::optional<MeasuredRates> alone;
    Figure sync;
    std::optional<Figure> hop;
    Curve turns;
    Curve all_reduce, all_gather, reduce_scatter;
    std::map<DType, TrainingRates> training;

    // Seconds for a group of `of_ranks` ranks. nullopt: another number of ranks was measured.
    // Beyond the largest measured vector, in proportion to the bytes.
    std::optional<double> AllReduceSeconds(int of_ranks, double bytes) const;
    std::optional<double> AllGatherSeconds(int of_ranks, double bytes) const;
    std::optional<double> ReduceScatterSeconds(int of_ranks, double bytes) const;
    // Wall seconds of a step per second of its ops, at least 1, by tensor ranks and rows.
    double Turns(int of_ranks, double rows) const;
};

// Parses the member "measured". Errors go to `outer`.
Measured ReadMeasured(const nlohmann::json& json, ObjectReader& outer);

}  // namespace weft::plan
