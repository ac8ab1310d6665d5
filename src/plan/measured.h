// What was measured of a cluster, as tables: it wins over what is computed of bandwidths and
// overheads. A machine file has it as its member "measured" (`weft plan --measure` writes one):
//     ranks       tensor ranks that it was measured with
//     cores       ranks of a host that have cores of their own (as many as it has devices)
//     products    {"Q4_0": {"1": "90 GFLOP/s", "64": ..}}: by type of the weights and rows
//     experts     the same of products of experts, by the rows that an expert has which has any
//     cache       bytes of the KV cache that attention of one row reads a second
//     scores      what it computes a second beside that; its seconds are the sum of both (of the
//                 first alone, where it is left out)
//     positions   it takes as long as if it saw so many positions more (0)
//     attention   what attention of many rows computes a second
//     kv          {"Q8_0": {"cache": .., "attention": ..}}: these two by type of the cache
//     op          seconds of an op that is no product, beside its bytes
//     rest        bytes of such ops a second, where rows are many (the memory's bandwidth)
//     step        seconds of a step beside its ops
//     alone       any of products, experts, cache, scores, positions, attention, kv, op, rest,
//                 step: of a rank that computes while the others wait for it, as stages do
//     sync        seconds of an all-reduce within a step, beside all_reduce
//     turns       {"1": 0.6, ..}: where its ranks share cores, what the seconds of a step's ops
//                 come to of the step's own, by its rows (1)
//     hop         seconds of a message between stages beside the links'
//     all_reduce  {"8192": "12 us", ..}: by bytes of the vector
//     all_gather, reduce_scatter   the same, by bytes of the whole
//     training    {"BF16": {"ops": .., "update": .., "step": ..}}, by what is computed in:
//         ops     {"mat_mul": {"512": "300 GFLOP/s"}, "rms_norm": {"512": "4 GB/s"}, ..}: by op and
//                 rows (of experts their own, of attention a sequence's): FLOP/s of products and
//                 attention, bytes a second of the others
//         update  bytes a second that the optimizer reads and writes
//         step    seconds of an update beside its ops
// cache, scores, attention, op, rest, step, update, sync and hop are marked figures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/figure.h"
#include "program/ops.h"
#include "tensor/dtype.h"

namespace weft::plan {

// Of a rank's ops in a step.
struct MeasuredRates {
    // By rows or bytes, ascending: FLOP/s of products, seconds of collectives.
    using Curve = std::map<double, double>;
    struct Cache {
        Figure cache, attention;
    };

    std::map<DType, Curve> products, experts;
    Figure cache, attention, op, step;
    std::map<DType, Cache> kv;
    std::optional<Figure> rest, scores;
    int positions = 0;

    // Of a product with weights of that type and so many rows. Between what was measured in
    // proportion of the logarithms; below as the first, above as the last. None: the type was not
    // measured, or in far fewer rows.
    std::optional<double> ProductFlops(DType type, double rows) const;
    // The same of experts, of which one has so many rows; of other products where there are none.
    std::optional<double> ExpertFlops(DType type, double rows) const;
    // Of a cache of that type; of another where it was not measured.
    double CacheRate(DType type) const;
    double AttentionFlops(DType type) const;
};

// Of a rank's ops in training.
struct TrainingRates {
    // FLOPs a second of ops with Trait::kByFlops, bytes a second of others.
    std::map<program::OpKind, MeasuredRates::Curve> ops;
    Figure update, step;
    // Of so many rows; none: the op was not measured.
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

    // Of so many ranks. None: others were measured. Beyond the largest vector in proportion to the
    // bytes.
    std::optional<double> AllReduceSeconds(int of_ranks, double bytes) const;
    std::optional<double> AllGatherSeconds(int of_ranks, double bytes) const;
    std::optional<double> ReduceScatterSeconds(int of_ranks, double bytes) const;
    // Of a step of so many rows on so many tensor ranks: seconds for each of its ops' (1 at least).
    double Turns(int of_ranks, double rows) const;
};

// Of the member "measured". Errors go to `outer`.
Measured ReadMeasured(const nlohmann::json& json, ObjectReader& outer);

}  // namespace weft::plan
