// Predicts how one layout of a model runs on a cluster: seconds per token, seconds of a prompt,
// memory.
//
// The time of a step is predicted rank by rank (plan/walk.h). The time of an op follows from its
// bytes, its arithmetic and a fixed time (plan/weft_rates.h, or measured tables). The time of a
// collective follows from its algorithm and the links between its ranks (coll/seconds.h), plus a
// fixed time of Weft. A stage is as slow as its slowest tensor rank. With P stages and B sequences,
// min(P, B) steps are in flight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/machine.h"
#include "plan/memory.h"
#include "plan/walk.h"

namespace weft::plan {

struct Draft {
    const ModelWalk* walk = nullptr;  // the draft model; null: no draft model
    int64_t tokens = 4;               // most drafted tokens of a sequence and step
    double accepted = 0.6;            // probability that a drafted token is accepted
    bool head = false;                // the model's own draft head drafts (model/draft_head.h)
    bool on() const { return head || walk != nullptr; }
};

struct Workload {
    int64_t context = 4096;  // tokens in the KV cache of each sequence while it decodes
    int64_t batch = 1;       // sequences
    int64_t prompt = 0;      // tokens of a prompt; 0: as many as `context`
    int64_t answer = 512;    // tokens of an answer (Prediction::answer_s)
    int64_t chunk = 512;     // most rows of a step
    int64_t depth = 0;       // tokens already in the KV cache before the prompt
    int64_t flights = 0;     // most steps in flight; 0: the number of stages
    Draft draft = {};
    int64_t prompt_tokens() const { return prompt > 0 ? prompt : context; }
    int64_t longest() const { return std::max(context, depth + prompt_tokens()); }
    // Drafted tokens of a step of all sequences, whose number the engine limits.
    int64_t draft_rows() const;
    // Most drafted tokens of a sequence in a step, and rows with them.
    int64_t drafts_each() const { return (draft_rows() + batch - 1) / batch; }
    int64_t rows_each() const { return drafts_each() + 1; }
    double yield() const;  // mean number of tokens of a sequence per step
    // The job of `weft serve` for this workload, with the values of --ctx, --max-seqs,
    // --prefill-chunk, --kv-dtype and --draft-tokens: in whole pages for each sequence.
    engine::Job AsJob(KvTypes kv_dtype) const;
};

struct Prediction {
    model::Layout layout;
    std::string name;  // "tp4", "tp2 pp2", "tp4 ep4"
    int hosts = 1;
    std::vector<int> used;          // indices of hosts of the cluster; empty: the first `hosts`
    Breakdown token;                // of one token of each sequence; total() is batch / tok_s
    Breakdown prompt;               // of one whole prompt
    std::vector<MemoryUse> memory;  // by rank
    int heaviest_rank = 0;          // the rank with the most weights
    std::optional<cluster::MemoryLack> lack;
    double tok_s = 0;                    // tokens/s of all sequences together
    double spread = 0;                   // standard deviation of tok_s
    double ttft_s = 0, ttft_spread = 0;  // time to the first token, and its standard deviation
    // Seconds from the start of the first prompt to the end of all answers, if the prompts of all
    // sequences run one after another and then all sequences decode. (A server that always has this
    // many requests takes as long for each of them.)
    double answer_s = 0, answer_spread = 0;
    double prompt_tok_s = 0;  // prompt tokens / ttft_s
    std::optional<double> joules_per_token;
    const MemoryUse& worst() const;  // the rank with the smallest share of free memory
    bool fits() const { return !lack; }
    // The host's part of a rank, of one with experts on the drive if there is one; null: hosts
    // compute no experts.
    const HostUse* UseOfHost() const;
    // Whether this layout fits and the other does not; if both fit: whether it has the smaller
    // answer_s; if neither fits: whether it needs less memory.
    bool IsBetterThan(const Prediction& other) const;
};

// Predicts layouts of one model and workload on any clusters. Ranks with the same work are
// predicted once. The arguments must outlive this object. Thread: one caller.
class LayoutPredictor {
  public:
    LayoutPredictor(const ModelWalk& walk, const Workload& load);
    ~LayoutPredictor();
    LayoutPredictor(const LayoutPredictor&) = delete;
    LayoutPredictor& operator=(const LayoutPredictor&) = delete;
    // Like the function Predict below. with_memory: if false, predicts only the time, which is
    // faster; fits() of the result is then true.
    Result<Prediction> Predict(const ClusterSpec& cluster, const model::Layout& layout,
                               bool with_memory = true);
    // Plans only the memory of timed.heaviest_rank. Returns false if that rank needs too much.
    bool MayFit(const ClusterSpec& cluster, const Prediction& timed);
    const ModelWalk& walk() const { return walk_; }
    // Number of different ranks predicted so far, a measure of the predictions' cost.
    size_t known_kinds() const;
    struct Tables;

  private:
    const ModelWalk& walk_;
    const Workload& load_;
    std::unique_ptr<Tables> tables_;
};

// Predicts a layout on the first ranks of the cluster. Errors: kUsage (the cluster has fewer
// ranks), kUnsupported (the model can't be sharded this way).
Result<Prediction> Predict(const ModelWalk& walk, const ClusterSpec& cluster,
                           const model::Layout& layout, const Workload& load);
// Number of all-reduces per token with this many tensor ranks. Errors: kUnsupported (the model
// can't be sharded this way).
Result<int64_t> SyncsOfToken(const ModelWalk& walk, int tensor_ranks);

}  // namespace weft::plan
