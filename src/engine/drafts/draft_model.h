// DraftModel: drafts with a smaller model of the same vocabulary. It runs on rank 0 and drafts for
// all answers of a step together.
//
// The draft model is the only rank of its own cluster and uses the device of the job's rank 0. Both
// models take turns on one team of threads, so they do not compete for cores. If a recovery
// replaces that device or enlarges the job's KV cache, the draft model loads again. Its KV cache
// uses the job's page numbers: a sequence has its rows on the same pages in both caches, so
// sequences that share pages in the job also share them here. DraftPages records the text of each
// page's rows. Before it drafts, the draft model computes the missing rows of each text, in steps
// of at most as many rows as a step of the job. Later rows overwrite the rows of rejected drafts.
//
// DraftLength chooses the length of a draft by the recent acceptance rate and by the cost of a step
// of each model. If the best length is 0, DraftLength still tries a draft from time to time.
// Thread: as Rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "engine/drafts/drafter.h"
#include "engine/drafts/drafting.h"
#include "engine/job.h"
#include "engine/rank/rank.h"
#include "engine/sampling/sampler.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

// Checks that both models map each token to the same text. kUsage: names the difference.
Status CompareVocabularies(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                           const std::string& draft_model, const tokenizer::Tokenizer& draft);

// Before any model is loaded: compares the vocabularies, and sets the memory that rank 0 needs for
// the draft model (Job::draft_bytes). answers: most answers that have drafts in one step.
// tokenizer: the tokenizer of the job's model; if null, PrepareDraftModel reads it and sets it.
// Reads only the files' headers and tokenizers. Errors: kUsage; errors of the draft model's file.
Status PrepareDraftModel(const std::string& draft_model, int64_t answers, Job& job,
                         std::unique_ptr<tokenizer::Tokenizer>& tokenizer);

// Chooses the length of an answer's draft. With judged drafts (DraftOptions::judged) the answer
// depends on the lengths. Costs then come from the models' sizes instead of a clock, so that the
// same seed gives the same answer. Thread: one caller.
class DraftLength {
  public:
    // measured: Choose uses measured costs if there are any, instead of the drafter's ratio.
    DraftLength(const Drafter& drafter, bool measured)
        : ratio_(drafter.ratio()), at_once_(drafter.at_once()), measured_(measured) {}
    // Length, at most `most`, for a step in which `answers` answers have a draft. costs: measured
    // costs of the job's steps; draft_costs: measured costs of the draft model's steps.
    int64_t Choose(int64_t most, int64_t answers, const StepCosts& costs,
                   const StepCosts& draft_costs);
    void Learn(int64_t checked, int64_t accepted);

  private:
    static constexpr double kPrior = 0.7;
    double Gain(int64_t tokens, int64_t answers, const StepCosts& costs,
                const StepCosts& draft_costs) const;

    double ratio_;
    bool at_once_, measured_;
    HitRate rate_{kPrior};
    int64_t pause_ = 0, wait_ = 0;  // steps without a draft: length of the pause, and steps left
};

// Records to which text the KV rows of each page belong. Thread: one caller.
class DraftPages {
  public:
    DraftPages(int64_t pages, int64_t page_tokens)
        : pages_(static_cast<size_t>(pages)), page_tokens_(page_tokens) {}
    // How many of the text's first tokens have their rows in `pages`, the pages of the text. space:
    // texts with different numbers (for example, of different tenants) never match.
    int64_t Known(uint64_t space, std::span<const int32_t> tokens,
                  std::span<const int32_t> pages) const;
    // Records that rows [from, to) of the text were computed. Known() must have returned at least
    // `from`.
    void Note(uint64_t space, std::span<const int32_t> tokens, std::span<const int32_t> pages,
              int64_t from, int64_t to);

  private:
    struct Page {
        uint64_t before = 0, after = 0;  // hashes of the text before and through the page
        std::vector<int32_t> tokens{};
    };
    std::vector<Page> pages_;
    int64_t page_tokens_;
};

class DraftModel final : public Drafter {
  public:
    // Loads the draft model. answers: most answers that have drafts in one step; rank: the job's
    // rank 0; stop: as ClusterOptions::stop.
    static Result<std::unique_ptr<DraftModel>> Open(const std::string& draft_model, int64_t answers,
                                                    Rank& rank, const std::atomic<bool>* stop);
    Status Serve(Rank& rank) override;
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }
    Status Guess(std::span<const DraftText> texts) override;

  private:
    // A text that is being drafted.
    struct Going {
        std::vector<int32_t> tokens;
        int64_t known = 0;    // tokens with KV rows
        int32_t output = -1;  // the text's row in the step's logits
        bool over = false;
        Sampler sampler{SamplerOptions()};
    };
    DraftModel(const std::string& name, int64_t answers) : name_(name), answers_(answers) {}
    Status Load(Rank& rank);
    Status CheckJob() const;
    void Begin(const DraftText& text, Going& going) const;
    void AddRows(const DraftText& text, Going& going);

    std::string name_;
    int64_t answers_;  // most that have drafts in one step
    double ratio_ = 0;
    StepCosts costs_;
    Rank* target_ = nullptr;
    std::unique_ptr<cluster::Cluster> cluster_;
    std::unique_ptr<Rank> rank_;
    std::unique_ptr<DraftPages> pages_;
    StepData step_;
    std::vector<Going> going_;
    std::vector<float> logits_;
    bool warned_ = false;
};

}  // namespace weft::engine
