// What one layout of a model on a cluster would do: seconds of a token, of a prompt, memory.
//
// A step of T rows is walked rank by rank (plan/walk.h). Each op takes its bytes, its arithmetic
// and its overhead (plan/weft_rates.h, or measured tables); a collective takes what its algorithm
// takes over the tiers that its ranks span (coll/seconds.h), and Weft's own. A stage is as slow
// as its slowest tensor rank. With P stages and B sequences, min(P, B) steps are in flight.
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
    const ModelWalk* walk = nullptr;  // of a draft model; null: none
    int64_t tokens = 4;               // guesses a step
    double accepted = 0.6;            // of guesses
    bool head = false;                // the model's own head guesses (model/draft_head.h)
    bool on() const { return head || walk != nullptr; }
    double yield() const;  // tokens a step
};

struct Workload {
    int64_t context = 4096;  // positions of each sequence while it decodes
    int64_t batch = 1;       // sequences
    int64_t prompt = 0;      // tokens of a prompt; 0: as many as the context
    int64_t answer = 512;    // tokens of the answer whose time ranks layouts
    int64_t chunk = 512;     // most rows of a step
    int64_t depth = 0;       // tokens before the prompt, which the KV cache has already
    int64_t flights = 0;     // steps under way at once at most; 0: as many as there are stages
    Draft draft = {};
    int64_t prompt_tokens() const { return prompt > 0 ? prompt : context; }
    int64_t rows_each() const { return draft.on() ? draft.tokens + 1 : 1; }
    // As `weft serve` runs it: --ctx, --max-seqs, --prefill-chunk, --kv-dtype and --draft-tokens.
    // `page`: tokens of a page of the KV cache.
    engine::Job AsJob(DType kv_dtype, int64_t page) const;
};

struct Prediction {
    model::Layout layout;
    std::string name;  // "tp4", "tp2 pp2", "tp4 ep4"
    int hosts = 1;
    std::vector<int> used;          // hosts of the cluster; empty: its first ones
    Breakdown token;                // of one token of each sequence; adds up to batch / tok_s
    Breakdown prompt;               // of a whole prompt
    std::vector<MemoryUse> memory;  // by rank
    std::optional<cluster::MemoryLack> lack;
    std::vector<double> stage_s;  // by stage: its step of each sequence's token
    double tok_s = 0;             // of all sequences
    double spread = 0;            // of tok_s, one standard deviation; ttft_spread of ttft_s
    double ttft_s = 0, ttft_spread = 0;
    // From the prompts of all sequences, one behind another, to the last token of their answers.
    // (A server with as many requests all the time takes so long for each of them, too.)
    double answer_s = 0, answer_spread = 0;
    double prompt_tok_s = 0;  // tokens of a prompt by ttft_s
    std::optional<double> joules_per_token;
    const MemoryUse& worst() const;  // the rank whose memory has the least room left, by share
    bool fits() const { return !lack; }
    // That fits where the other does not, answers sooner, or lacks less.
    bool IsBetterThan(const Prediction& other) const;
    // The part of a token that takes longest, and its share.
    std::pair<const char*, double> limit() const;
};

// What ranks of several layouts, on several clusters, do alike: of one model and workload.
// Borrows all. Thread: one caller.
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

// Of one model on one cluster: what ranks of several layouts do alike is worked out once. Borrows
// all. Thread: one caller.
class LayoutPredictor {
  public:
    // known: of the same model and workload; null: its own.
    LayoutPredictor(const ModelWalk& walk, const ClusterSpec& cluster, const Workload& load,
                    RanksKnown* known = nullptr);
    ~LayoutPredictor();
    LayoutPredictor(const LayoutPredictor&) = delete;
    LayoutPredictor& operator=(const LayoutPredictor&) = delete;
    // As Predict below.
    Result<Prediction> Predict(const model::Layout& layout);
    // The same without memory, which takes longer to plan than the time: it seems to fit.
    Result<Prediction> PredictTime(const model::Layout& layout);
    const ClusterSpec& cluster() const { return cluster_; }
    const ModelWalk& walk() const { return walk_; }
    const Machine& machine_of(int rank) const {
        return cluster_.hosts[static_cast<size_t>(host_of_[static_cast<size_t>(rank)])];
    }
    // Ranks that were predicted and had nothing like them: what predictions cost.
    size_t known_kinds() const;

  private:
    Result<Prediction> PredictWith(const model::Layout& layout, bool with_memory);

    const ModelWalk& walk_;
    const ClusterSpec& cluster_;
    const Workload& load_;
    std::unique_ptr<RanksKnown> own_;  // where none was given
    RanksKnown& known_;
    std::vector<int> host_of_;  // by rank
};

// The layout's ranks are the first of the cluster. Errors: kUnsupported (the model can't be cut
// so).
Result<Prediction> Predict(const ModelWalk& walk, const ClusterSpec& cluster,
                           const model::Layout& layout, const Workload& load);
// All-reduces of a token with so many tensor ranks. Errors: kUnsupported, as of Predict.
Result<int64_t> SyncsOfToken(const ModelWalk& walk, int tensor_ranks);

// All ranks of the cluster as tensor ranks.
Result<Prediction> PredictTensor(const ModelWalk& walk, const ClusterSpec& cluster,
                                 const Workload& load);

}  // namespace weft::plan
