// The layout of ranks on several hosts where the user names none: tensor ranks, which make a token
// faster, or pipeline stages, which send less. The smaller time of a whole answer decides, with the
// collectives' measured times and the weights' measured read speed.
#pragma once

#include <cstdint>

#include "cluster/cluster.h"
#include "coll/tuning.h"
#include "engine/job.h"
#include "model/hyper.h"
#include "model_files/model_file.h"

namespace weft::engine {

// Whether the ranks choose: the job names no part of a layout, and each rank has a host of its own.
bool ChoosesLayout(const Job& job, cluster::Cluster& cluster);

struct LayoutCosts {
    int ranks = 1;
    int64_t layers = 0;
    int64_t sum_bytes = 0;        // of one row's all-reduce
    int64_t prompt = 0;           // tokens
    int64_t answer = 0;           // tokens
    int64_t chunk = 512;          // most rows of a step
    double token_bytes = 0;  // weights that a token reads, of all ranks together
    double bytes_per_s = 0;  // at which the slowest rank reads them
};

// Half the job's context, and an answer of at most 512 tokens (none of a job for embeddings).
LayoutCosts CostsOf(const Job& job, const model::Hyper& hyper,
                    const model_files::ModelSource& source);

// Estimated seconds of a prompt and its answer. The arithmetic of the prompt is left out: both
// layouts share it among all ranks. Both 0 where the table has no measured times.
struct LayoutSeconds {
    double tensor = 0, stages = 0;
    bool stages_win() const { return stages < tensor; }
};
LayoutSeconds EstimateLayouts(const LayoutCosts& costs, const coll::Tuning& tuning);

}  // namespace weft::engine
