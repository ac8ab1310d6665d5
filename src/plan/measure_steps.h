// Runs steps of a small synthetic model on all ranks with op timings on, for `weft plan --measure`
// (measure.h), and derives the rates of a rank's ops.
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
    // Numbers of sequences that decode together; one sequence alone is always measured.
    std::vector<int64_t> sequences = {};
    std::vector<int64_t> rows = {};  // prompt lengths, ascending; the last should be long
    bool deep = true;                // also decode tokens at late positions
    bool watts = false;              // also measure power
};

struct StepsRun {
    // In order: one token, one token at a late position, tokens of several sequences, prompts.
    std::vector<StepRange> ranges;
    OpTimes times;
    model::Hyper hyper;
    double idle_watts = 0, busy_watts = 0;  // of one host; 0: it has no sensors
    // With stages: mean seconds and mean bytes of a message between stages. `times` then covers
    // only the first stage, and each prompt must fit one chunk (engine::PromptChunk).
    std::pair<double, double> hop;
};

// Errors: those of the ranks.
Result<StepsRun> RunSteps(const cluster::ClusterOptions& cluster, const engine::Job& job,
                          const StepsWanted& wanted);

// Adds the run's rates of products, by rows, to `rates`; of two rates for the same rows, keeps the
// higher one. experts: measures the products of experts instead.
void AddProducts(const StepsRun& run, bool experts, MeasuredRates& rates);
// Raises the machine's bandwidth to the highest bytes/s of the run's one-row products, and its
// compute to the highest FLOP/s of any product, if these are higher.
void AddPeaks(const StepsRun& run, Machine& machine);
// Returns the cache and attention rates for the run's KV type. rates.scores must be set. bandwidth:
// bytes/s of the memory.
MeasuredRates::Cache CacheRates(const StepsRun& run, double bandwidth, const MeasuredRates& rates);
// Sets cache, scores, positions and attention of `rates` from two runs. The runs' models have
// attention heads of different shapes, so the time for bytes and the time for arithmetic can be
// told apart.
void SetAttention(const StepsRun& run, const StepsRun& other, double bandwidth,
                  MeasuredRates& rates);
// Sets op, rest and step of `rates` from the ops other than products and collectives. rates.cache
// must be set.
void AddOverheads(const StepsRun& run, MeasuredRates& rates);

// A figure of a machine file, marked as measured.
Figure Told(double value, const char* how);

}  // namespace weft::plan
