// Measured tables of a cluster. A measured table takes precedence over rates computed from
// bandwidths and fixed times. `weft plan --measure` writes them as the member "measured" of a
// machine file:
//     ranks       number of tensor ranks in the measurement, the machine's `devices` on each host
//     cores       number of ranks on a host that have cores of their own (default: all)
//     products    {"Q4_0": {"1": "90 GFLOP/s", "64": ..}}: by weight type and number of rows
//     experts     the same for products of experts, by the number of rows of a used expert
//     cache       bytes/s at which attention of one row reads the KV cache
//     scores      FLOP/s of attention of one row; its seconds are added to those of `cache`. If
//                 absent, `cache` covers both
//     positions   fixed time of attention, as a number of extra positions (0)
//     attention   FLOP/s of attention of many rows
//     kv          {"Q8_0": {"cache": .., "attention": ..}}: both by type of the KV cache
//     op          fixed seconds of an op other than a product
//     rest        bytes/s of ops other than products with many rows (default: the memory's
//                 bandwidth)
//     step        fixed seconds of a step
//     alone       the members `products` to `step`, for a rank that computes while the other
//                 ranks wait, as pipeline stages do
//     sync        extra seconds of an all-reduce within a step, on top of all_reduce
//     hop         fixed seconds of a message between stages, beyond the link's time
//     all_reduce  {"8192": "12 us", ..}: by bytes of the vector. Counts for as many ranks on as
//                 many hosts, over the machine's own wire; other groups have the links' figures
//     all_gather, reduce_scatter   the same, by bytes of the whole value
//     training    {"BF16": {"ops": .., "update": .., "step": ..}}, by compute dtype:
//         ops     {"mat_mul": {"512": "300 GFLOP/s"}, "rms_norm": {"512": "4 GB/s"}, ..}: FLOP/s of
//                 products and attention, bytes/s of other ops; by op and number of rows (for
//                 experts: rows of one expert; for attention: rows of one sequence)
//         update  bytes/s that the optimizer reads and writes
//         step    fixed seconds of an update
// cache, scores, attention, op, rest, step, update, sync and hop are figures with marks
// (plan/figure.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "coll/seconds.h"
#include "plan/figure.h"
#include "program/ops.h"
#include "tensor/dtype.h"

namespace weft::plan {

// Rates of a rank's ops in a step.
struct MeasuredRates {
    // A curve. Keys: rows or bytes, ascending. Values: FLOP/s of products, seconds of collectives.
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
    // between measured numbers of rows; outside their range, uses the nearest one. nullopt: the
    // type was not measured, or only with far fewer rows.
    std::optional<double> ProductFlops(DType type, double rows) const;
    // As ProductFlops, for an expert with this number of rows. Without measurements of experts,
    // equals ProductFlops.
    std::optional<double> ExpertFlops(DType type, double rows) const;
    // Bytes/s of attention of one row with a KV cache of this type; `cache` if the type was not
    // measured. AttentionFlops is the same for `attention`.
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
    int ranks = 1, hosts = 1;  // hosts: of these ranks
    std::optional<int> cores;
    std::optional<MeasuredRates> alone;
    Figure sync;
    std::optional<Figure> hop;
    Curve all_reduce, all_gather, reduce_scatter;
    std::map<DType, TrainingRates> training;

    // Seconds of a collective in a group. nullopt: the measurement had another number of ranks or
    // of hosts. Beyond the largest measured size, the time is proportional to the bytes.
    std::optional<double> AllReduceSeconds(const coll::TierGroup& group, double bytes) const;
    std::optional<double> AllGatherSeconds(const coll::TierGroup& group, double bytes) const;
    std::optional<double> ReduceScatterSeconds(const coll::TierGroup& group, double bytes) const;
    // Drops the tables of collectives if these crossed a wire, because the times differ on another
    // wire, or with other ranks on it.
    void ForgetWire();

  private:
    std::optional<double> SecondsOf(const Curve& curve, const coll::TierGroup& group,
                                    double bytes) const;
};

// Seconds of a collective: measured, or predicted from Weft's algorithms and the links. tables: may
// be null. bytes: size of the whole value. value_bytes: size of one element on the wire.
double AllReduceSeconds(const Measured* tables, const coll::TierGroup& group, double bytes);
double AllGatherSeconds(const Measured* tables, const coll::TierGroup& group, double bytes);
double ReduceScatterSeconds(const Measured* tables, const coll::TierGroup& group, double bytes,
                            double value_bytes);

// The member "measured" of a machine file.
void MeasuredFields(ObjectFields& io, Measured& measured);

}  // namespace weft::plan
