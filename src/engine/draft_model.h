// A draft model: a smaller model of the same vocabulary guesses, on rank 0 alone, for all answers
// of a step together.
//
// It is a rank of a cluster of its own with one rank, on the device of the job's rank: both run on
// one team of threads, one after the other, so that they do not fight for cores. Its KV cache has
// the pages of the job's, by the same numbers: a sequence has its rows where the job has them, and
// what the prefix cache shares is shared here, too. Each page knows the text that its rows belong
// to (DraftPages). What is missing of a text is computed before it is drafted, so much in a step as
// the job has rows; rows of guesses that were refused are written over.
//
// How many tokens it drafts for an answer follows from how many were accepted of late and from what
// a step of each model costs (DraftLength); where that is none, it is tried again now and then.
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
#include "engine/drafter.h"
#include "engine/drafting.h"
#include "engine/job.h"
#include "engine/rank.h"
#include "engine/sampler.h"
#include "tokenizer/tokenizer.h"

namespace weft::engine {

// Whether the tokens of both models are the same texts. kUsage, with what differs.
Status CompareVocabularies(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                           const std::string& draft_model, const tokenizer::Tokenizer& draft);

// Before anything is loaded: compares the vocabularies, fills in what rank 0 needs for the draft
// model beside its share of the job (Job::draft_bytes). answers: most that it drafts at once.
// tokenizer: the model's; read here where it is null. Reads headers only. Errors: kUsage; those of
// the draft's file.
Status PrepareDraftModel(const std::string& draft_model, int64_t answers, Job& job,
                         std::unique_ptr<tokenizer::Tokenizer>& tokenizer);

// How many tokens to draft for one answer: see above. Where tokens are judged, the answer depends
// on the lengths of drafts: then costs are taken from the models' sizes, not a clock, and the same
// seed gives the same answer. Thread: one caller.
class DraftLength {
  public:
    // ratio: of the cost of a draft token to that of a step of one row. measured: costs are those
    // of steps that ran.
    DraftLength(double ratio, bool measured) : ratio_(ratio), measured_(measured) {}
    // For a step in which `answers` have a draft. costs: of the model's steps, by rows;
    // draft_costs: of the draft model's.
    int64_t Choose(int64_t most, int64_t answers, const StepCosts& costs,
                   const StepCosts& draft_costs);
    void Learn(int64_t checked, int64_t accepted);

  private:
    static constexpr double kPrior = 0.7;
    double Gain(int64_t tokens, int64_t answers, const StepCosts& costs,
                const StepCosts& draft_costs) const;

    double ratio_;
    bool measured_;
    HitRate rate_{kPrior};
    int64_t pause_ = 0, wait_ = 0;  // how many steps without a draft: in a row, still
};

// Which texts the rows of the KV cache's pages belong to. Pure. Thread: one caller.
class DraftPages {
  public:
    DraftPages(int64_t pages, int64_t page_tokens)
        : pages_(static_cast<size_t>(pages)), page_tokens_(page_tokens) {}
    // How many of the first tokens have their rows in `pages`, the text's. space: texts of other
    // ones are never the same.
    int64_t Known(uint64_t space, std::span<const int32_t> tokens,
                  std::span<const int32_t> pages) const;
    // Rows [from, to) of the text were computed; those before are known.
    void Note(uint64_t space, std::span<const int32_t> tokens, std::span<const int32_t> pages,
              int64_t from, int64_t to);

  private:
    struct Page {
        uint64_t before = 0, after = 0;  // a hash of all that is before it; of that and the page
        std::vector<int32_t> tokens{};
    };
    std::vector<Page> pages_;
    int64_t page_tokens_;
};

class DraftModel final : public Drafter {
  public:
    // answers: most that it drafts at once; rank: the job's, on rank 0; stop: as in ClusterOptions.
    // Loads the weights.
    static Result<std::unique_ptr<DraftModel>> Open(const std::string& draft_model, int64_t answers,
                                                    Rank& rank, const std::atomic<bool>* stop);
    void Serve(Rank& rank) override;
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }
    Status Guess(std::span<const DraftText> texts) override;

  private:
    // A text while it is drafted.
    struct Going {
        std::vector<int32_t> tokens;
        int64_t known = 0;    // of them, that have KV rows
        int32_t output = -1;  // of the step: its row of logits
        bool over = false;
        Sampler sampler{SamplerOptions()};
    };
    DraftModel(const std::string& name, double ratio) : name_(name), ratio_(ratio) {}
    Status CheckJob() const;
    void Begin(const DraftText& text, Going& going) const;
    void AddRows(const DraftText& text, Going& going);

    std::string name_;
    double ratio_;
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
