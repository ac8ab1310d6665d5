// Chooses the layout when the user names none: tensor parallelism, which computes a token faster,
// or pipeline parallelism, which sends fewer bytes. Ranks whose devices do not give the same bits
// can only be a pipeline. For ranks on several hosts, the layout with the smaller estimated time of
// a whole answer wins. The estimate uses the collectives' measured times, the measured read speed
// of the weights, and all-reduces that alternate with computing as in decode steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "coll/autotune.h"
#include "coll/tuning.h"
#include "engine/job.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "model_files/model_file.h"

namespace weft::engine {

// Whether all devices with these identities (DeviceInfo::identity) give the same bits, as far as
// they are known. "": an unknown one.
bool AreAlike(std::vector<std::string> identities);
// Whether the job sets none of tp, pp and ep.
bool LeavesLayoutOpen(const Job& job);
// Whether this file chooses the layout: it is open, and there are several linked ranks.
bool ChoosesLayout(const Job& job, cluster::Cluster& cluster);
// Whether ranks with equal devices measure both layouts: each has its own host, and the job has
// neither shares of ranks nor a draft head. Otherwise they are tensor ranks.
bool MeasuresLayouts(const Job& job, cluster::Cluster& cluster);
// Whether the ranks must look for missing links before they choose a layout: it is open, and there
// are three hosts or more.
bool MayLackLinks(const Job& job, cluster::Cluster& cluster);

// The data links for the layout of `job` (JSON), for ClusterOptions::links_of. A layout that is not
// chosen yet needs the links of a pipeline.
cluster::LinkNeeds LinksOf(const std::string& job, int ranks);
// Bytes of the windows of a rank's links, if the job names this layout. local: all ranks are on one
// machine.
uint64_t WindowsBytes(const model::Layout& layout, int rank, bool local = false);

struct LayoutCosts {
    int ranks = 1;
    int64_t layers = 0;
    // Bytes that an all-reduce of one row sums: of a generated token, and of a prompt.
    int64_t sum_bytes = 0, prompt_sum_bytes = 0;
    int64_t logits_bytes = 0;  // that a tensor rank sends to each other one for a token
    int64_t prompt = 0;        // tokens
    int64_t answer = 0;        // tokens
    int64_t chunk = 512;       // most rows of a step
    double tail_s = 0;         // by which an all-reduce of a token exceeds its median
    double token_bytes = 0;    // weight bytes that all ranks together read per token
    double bytes_per_s = 0;    // read speed of the slowest rank
    // Weight bytes that a tensor rank reads between two all-reduces of a token.
    double piece_bytes() const;
    // Sets tail_s. It has two standard errors of the mean: on a link with rare, long delays, tensor
    // parallelism must win by the doubt that a short series leaves.
    void SetTail(const coll::SeriesUs& series, const coll::Tuning& tuning);
};

// Costs for a prompt of half the job's context, and an answer of at most 512 tokens (0 for
// embeddings).
LayoutCosts CostsOf(const Job& job, const model::Hyper& hyper,
                    const model_files::ModelSource& source);

// Estimated seconds of a prompt and its answer with tensor parallelism and with pipeline stages.
// Leaves out arithmetic, which both layouts divide among all ranks. Both are 0 if `tuning` has no
// measured times.
struct LayoutSeconds {
    double tensor = 0, stages = 0;
    // Tensor parallelism must win by a tenth: its ranks wait for the slowest of them at each sum,
    // which the estimate leaves out.
    bool stages_win() const { return stages < 1.1 * tensor; }
};
LayoutSeconds EstimateLayouts(const LayoutCosts& costs, const coll::Tuning& tuning);

}  // namespace weft::engine
