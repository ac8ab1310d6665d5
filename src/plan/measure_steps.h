// Runs steps of a small synthetic model on all ranks with op timings on, for `weft plan --measure`
// (measure.h), and derives rates of a rank's ops.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/job.h"
#include "model/hyper.h"
#include "plan/machine.h"
#include "plan/op_times.h"

namespace weft::plan {

// The steps to run: a synthetic model, with all ranks as tensor ranks or all as stages.
struct StepsWanted {
    std::string model = {};  // synthetic:NAME:TYPE
    int tp = 1, pp = 1;
    DType kv_dtype = DType::kF16;
    std::vector<int64_t> sequences = {};  // sequences that decode together; 1 always runs
    std::vector<int64_t> rows = {};       // prompt lengths, ascending; the last: many rows
    bool deep = true;                     // also a token at a late position
    bool watts = false;
};

// Steps [first, last], all of the same shape.
struct StepRange {
    int64_t first = 0, last = 0;
    program::StepShape shape;
};

struct StepsRun {
    // In order: a token, a token at a late position, tokens of several sequences, prompts.
    std::vector<StepRange> ranges;
    OpTimes times;
    model::Hyper hyper;
    double idle_watts = 0, busy_watts = 0;  // of a host; 0: no sensors
    // With stages: mean seconds of a message between stages, and its mean bytes. `times` is then of
    // the first stage alone, and prompts must be short enough to run in one chunk
    // (engine::PromptChunk).
    std::pair<double, double> hop;
};

// Errors: those of the ranks.
Result<StepsRun> RunSteps(const cluster::ClusterOptions& cluster, const engine::Job& job,
                          const StepsWanted& wanted);

// Adds rates of products by rows, where they exceed those in `rates`. experts: of experts'
// products.
void AddProducts(const StepsRun& run, bool experts, MeasuredRates& rates);
// Raises the machine's bytes/s of one-row products and FLOP/s of the fastest, if the run's are
// higher.
void AddPeaks(const StepsRun& run, Machine& machine);
// Cache and attention rates for the run's KV type. Needs rates.scores. bandwidth: of the memory.
MeasuredRates::Cache CacheRates(const StepsRun& run, double bandwidth, const MeasuredRates& rates);
// Sets cache, scores, positions and attention from two runs with heads of different shapes, which
// separate the time for bytes from the time for arithmetic.
void SetAttention(const StepsRun& run, const StepsRun& other, double bandwidth,
                  MeasuredRates& rates);
// Sets op, rest and step from the ops other than products and collectives. Needs rates.cache.
void AddOverheads(const StepsRun& run, MeasuredRates& rates);

// A figure of a machine file, marked as measured.
Figure Told(double value, const char* how);

}  // namespace weft::plan
