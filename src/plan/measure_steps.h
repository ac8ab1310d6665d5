// Steps of a small synthetic model on all ranks with the ops' timings on, for `weft plan
// --measure` (measure.h), and what they say of a rank's ops.
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

// What runs: `layers` of a model, all ranks as tensor ranks or all as stages.
struct StepsWanted {
    std::string model = {};  // synthetic:NAME:TYPE
    int tp = 1, pp = 1;
    DType kv_dtype = DType::kF16;
    std::vector<int64_t> sequences = {};  // that decode together, beside one
    std::vector<int64_t> rows = {};       // of prompts, ascending: the last are many
    bool deep = true;                     // and a token far on
    bool watts = false;
};

// Steps [first, last], which are alike.
struct StepRange {
    int64_t first = 0, last = 0;
    program::StepShape shape;
};

struct StepsRun {
    // A token, one far on, tokens of several sequences, prompts.
    std::vector<StepRange> ranges;
    OpTimes times;
    model::Hyper hyper;
    double idle_watts = 0, busy_watts = 0;  // of a host; 0: no sensors
    // With stages: seconds of a message between them, and its bytes on average. Their times are of
    // the first one alone, and no prompt may be so long that it goes in parts
    // (engine::PromptChunk).
    std::pair<double, double> hop;
};

// Errors: those of the ranks.
Result<StepsRun> RunSteps(const cluster::ClusterOptions& cluster, const engine::Job& job,
                          const StepsWanted& wanted);

// Rates of products by rows, where they are more than those that are there; experts: of those.
void AddProducts(const StepsRun& run, bool experts, MeasuredRates& rates);
// Bytes a second of products of one row, and FLOP/s of the fastest, where they are more.
void AddPeaks(const StepsRun& run, Machine& machine);
// Of the KV cache in the run's type, with rates.scores: cache and attention. bandwidth: of the
// memory.
MeasuredRates::Cache CacheRates(const StepsRun& run, double bandwidth, const MeasuredRates& rates);
// Attention of a row that reads bytes and computes, from two runs with heads of other shapes: sets
// cache, scores, positions and attention.
void SetAttention(const StepsRun& run, const StepsRun& other, double bandwidth,
                  MeasuredRates& rates);
// What is neither a product nor a collective, beside `rates.cache`: op, rest and step.
void AddOverheads(const StepsRun& run, MeasuredRates& rates);

// A figure of a machine file that was measured.
Figure Told(double value, const char* how);

}  // namespace weft::plan
