// Predicts one layout of a model on a cluster: seconds per token, seconds of a prompt, memory.
//
// A step of T rows is walked rank by rank (plan/walk.h). The time of an op is that of its bytes,
// its arithmetic and its fixed time (plan/weft_rates.h, or measured tables). The time of a
// collective is that of its algorithm over the tiers that its ranks span (coll/seconds.h), plus
// Weft's fixed time. A stage is as slow as its slowest tensor rank. With P stages and B sequences,
// min(P, B) steps are in flight.
#pragma once

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
    const ModelWalk* walk = nullptr;  // the draft model; null: none
    int64_t tokens = 4;               // drafted tokens per step
    double accepted = 0.6;            // share of drafted tokens
    bool head = false;                // the model's own head drafts (model/draft_head.h)
    bool on() const { return head || walk != nullptr; }
    double yield() const;  // tokens per step
};

struct Workload {
    int64_t context = 4096;  // positions of each sequence while it decodes
    int64_t batch = 1;       // sequences
    int64_t prompt = 0;      // tokens of a prompt; 0: same as the context
    int64_t answer = 512;    // tokens of the answer whose time ranks layouts
    int64_t chunk = 512;     // most rows of a step
    int64_t depth = 0;       // tokens already in the KV cache before the prompt
    int64_t flights = 0;     // most steps in flight; 0: the number of stages
    Draft draft = {};
    int64_t prompt_tokens() const { return prompt > 0 ? prompt : context; }
    int64_t rows_each() const { return draft.on() ? draft.tokens + 1 : 1; }
    // The job of `weft serve` for this workload: --ctx, --max-seqs, --prefill-chunk, --kv-dtype and
    // --draft-tokens. page: tokens of a page of the KV cache.
    engine::Job AsJob(DType kv_dtype, int64_t page) const;
};

struct Prediction {
    model::Layout layout;
    std::string name;  // "tp4", "tp2 pp2", "tp4 ep4"
    int hosts = 1;
    std::vector<int> used;          // indices of hosts of the cluster; empty: the first `hosts`
    Breakdown token;                // of one token of each sequence; its sum is batch / tok_s
    Breakdown prompt;               // of a whole prompt
    std::vector<MemoryUse> memory;  // by rank
    int heaviest_rank = 0;          // of the most weights
    std::optional<cluster::MemoryLack> lack;
    std::vector<double> stage_s;  // by stage: its time for a token of every sequence
    double tok_s = 0;             // of all sequences
    double spread = 0;            // standard deviation of tok_s; ttft_spread: of ttft_s
    double ttft_s = 0, ttft_spread = 0;
    // From the start of the prompts of all sequences, one after another, to the last token of their
    // answers. (A server that always has this many requests takes as long for each of them.)
    double answer_s = 0, answer_spread = 0;
    double prompt_tok_s = 0;  // prompt tokens / ttft_s
    std::optional<double> joules_per_token;
    const MemoryUse& worst() const;  // the rank with the smallest share of free memory
    bool fits() const { return !lack; }
    // This layout fits and the other does not; or answers sooner; or lacks less memory.
    bool IsBetterThan(const Prediction& other) const;
    // The cause with the largest share of a token's time, and its share.
    std::pair<const char*, double> limit() const;
};

// Cache of rank work shared by predictions of several layouts and clusters, for one model and
// workload. Borrows all arguments. Thread: one caller.
class RanksKnown {
  public:
    RanksKnown(const ModelWalk& walk, const Workload& load);
    ~RanksKnown();
    RanksKnown(const RanksKnown&) = delete;
    RanksKnown& operator=(const RanksKnown&) = delete;
    struct Tables;
    Tables& tables() { return *tables_; }

  private:
    std::unique_ptr<Tables> tables_;
};

// Predicts layouts of one model on one cluster. Computes the common work of ranks once. Borrows all
// arguments. Thread: one caller.
class LayoutPredictor {
  public:
    // known: a cache for the same model and workload; null: its own.
    LayoutPredictor(const ModelWalk& walk, const ClusterSpec& cluster, const Workload& load,
                    RanksKnown* known = nullptr);
    ~LayoutPredictor();
    LayoutPredictor(const LayoutPredictor&) = delete;
    LayoutPredictor& operator=(const LayoutPredictor&) = delete;
    // As the function Predict below.
    Result<Prediction> Predict(const model::Layout& layout);
    // As Predict without memory, which takes longer than the time. fits() is true.
    Result<Prediction> PredictTime(const model::Layout& layout);
    // Plans the memory of the heaviest rank only. False: it alone lacks memory.
    bool MayFit(const Prediction& timed);
    const ClusterSpec& cluster() const { return cluster_; }
    const ModelWalk& walk() const { return walk_; }
    const Machine& machine_of(int rank) const {
        return cluster_.hosts[static_cast<size_t>(host_of_[static_cast<size_t>(rank)])];
    }
    // Number of distinct kinds of ranks predicted so far: the cost of the predictions.
    size_t known_kinds() const;

  private:
    Result<Prediction> PredictWith(const model::Layout& layout, bool with_memory);

    const ModelWalk& walk_;
    const ClusterSpec& cluster_;
    const Workload& load_;
    std::unique_ptr<RanksKnown> own_;  // if none was given
    RanksKnown& known_;
    std::vector<int> host_of_;  // by rank
};

// Uses the first ranks of the cluster. Errors: kUnsupported (the model can't be sharded this way).
Result<Prediction> Predict(const ModelWalk& walk, const ClusterSpec& cluster,
                           const model::Layout& layout, const Workload& load);
// All-reduces per token with this many tensor ranks. Errors: kUnsupported, as Predict.
Result<int64_t> SyncsOfToken(const ModelWalk& walk, int tensor_ranks);

// Predicts all ranks of the cluster as tensor ranks.
Result<Prediction> PredictTensor(const ModelWalk& walk, const ClusterSpec& cluster,
                                 const Workload& load);

}  // namespace weft::plan
