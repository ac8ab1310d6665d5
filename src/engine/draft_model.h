// A draft model: a smaller model of the same vocabulary guesses, on rank 0 alone.
//
// It is a rank of a cluster of its own with one rank, on the backend of the job's rank: both run on
// one team of threads, one after the other, so that they do not fight for cores. Its KV cache
// follows the text by position: what was refused is written over.
//
// How many tokens it drafts follows from how many were accepted of late and from what a step of
// each model costs; where that is none, it is tried again now and then. For greedy answers costs
// are measured. Drawn ones depend on how long drafts are, so that costs are taken from the models'
// sizes, and the same seed gives the same answer.
// Thread: as Rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/drafter.h"
#include "engine/job.h"
#include "engine/rank.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

// Whether the tokens of both models are the same texts. kUsage, with what differs; errors of the
// draft's file. Reads its header only.
Status CheckVocabulary(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                       const std::string& draft_model);
Status CompareVocabularies(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                           const std::string& draft_model, const tokenizer::Tokenizer& draft);

// What rank 0 needs for a draft model beside the job's own. Reads its header only.
Result<int64_t> DraftModelBytes(const std::string& model, const Job& job);

// How many tokens to draft: see above. Thread: one caller.
class DraftLength {
  public:
    // ratio: of the cost of a draft token to that of a step of one row.
    explicit DraftLength(double ratio) : ratio_(ratio) {}
    void Begin(bool measured) {
        measured_ = measured;
        rate_ = HitRate(kPrior);
        pause_ = wait_ = 0;
    }
    int64_t Choose(int64_t most, const StepCosts& costs);
    void Learn(int64_t checked, int64_t accepted);
    void LearnDraftToken(double seconds) { draft_costs_.Learn(1, seconds); }

  private:
    static constexpr double kPrior = 0.7;
    double Gain(int64_t tokens, const StepCosts& costs) const;

    double ratio_;
    bool measured_ = false;
    StepCosts draft_costs_;
    HitRate rate_{kPrior};
    int64_t pause_ = 0, wait_ = 0;  // how many steps without a draft: in a row, still
};

class DraftModel final : public Drafter {
  public:
    // rank: the job's, on rank 0; stop: as in ClusterOptions. Loads the weights.
    static Result<std::unique_ptr<DraftModel>> Open(const DraftOptions& options, const Job& job,
                                                    Rank& rank, const std::atomic<bool>* stop);

    Status Begin(std::span<const int32_t> prompt, const SamplerOptions& sampler) override;
    Status Propose(std::span<const int32_t> history, int64_t most, const StepCosts& costs,
                   Draft& draft) override;
    void Learn(int64_t checked, int64_t accepted) override { length_.Learn(checked, accepted); }
    void Serve(Rank& rank) override;

  private:
    DraftModel(bool always, double ratio) : always_(always), length_(ratio) {}
    // Why drafting should end: the job's cluster says so.
    Status CheckJob() const;
    // Runs what the KV cache lacks of `tokens`; the logits after the last one.
    Status Follow(std::span<const int32_t> tokens);

    bool always_;
    DraftLength length_;
    Rank* target_ = nullptr;
    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    StepData step_;
    std::vector<int32_t> cached_;  // tokens whose KV rows are there
    std::vector<int32_t> text_;    // the history and the draft
    std::vector<float> logits_;
    std::optional<Sampler> sampler_;
    bool greedy_ = true;
};

}  // namespace weft::engine
