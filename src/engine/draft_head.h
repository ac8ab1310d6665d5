// The draft head: guesses from a layer that the model brings for it (model/draft_head.h), on all
// ranks, which have it cut as the other layers.
//
// The head runs behind the step that computed its rows: once over all rows of that step, prompts
// included, each with the token that turned out to be next. So its KV cache has a row wherever the
// model's has one, on the same pages, and the prefix cache, copies of pages, preemption and
// recovery keep both. (A page that two texts share was filled with the next token of the first one:
// where they part, one row of the head's cache differs. Only guesses depend on it.) The output rows
// of that run give the first guesses; each further run, of one row a text, gives one more. Rows of
// guesses that were refused are written over.
//
// How many tokens it guesses: as a draft model (DraftLength).
// Thread: as Rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafter.h"
#include "engine/rank.h"
#include "engine/step_message.h"

namespace weft::engine {

// Before anything is started: whether the job's model has a head. Reads its header. Errors: kUsage.
Status CheckDraftHead(const Job& job);

class DraftHead final : public Drafter {
  public:
    // rank: the job's, on rank 0; the job has Job::draft_head.
    explicit DraftHead(Rank& rank) { Serve(rank); }
    void Serve(Rank& rank) override;
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }

    // What the step that has just run computed, sequence by sequence, in its order, before another
    // step runs. text: its tokens, with those that the step gave; id: 0 where nothing is drafted
    // for it.
    void BeginStep(const StepData& step);
    void AddText(int64_t id, std::span<const int32_t> text);
    // Runs the head over that step's rows, unless Guess has done so.
    Status Follow();
    // Errors: as Drafter has them. Texts that the last step did not end in a token of get none.
    Status Guess(std::span<const DraftText> texts) override;
    // The number of the last step that was run, on which the next one's follows.
    void SetNumber(int64_t* number) { number_ = number; }

  private:
    // Where a text's last token stands in the step.
    struct Row {
        int64_t id = 0;
        int32_t row = 0, position = 0, adapter = 0;
    };
    // A text while it is drafted.
    struct Going {
        const DraftText* text = nullptr;
        Row at;
        std::vector<int32_t> tokens;
        Sampler sampler{SamplerOptions()};
        bool over = false;
    };
    const Row* Find(int64_t id) const;
    void Gather(std::span<const DraftText> texts);
    Status Draw(size_t count);
    void NextRows(size_t count);
    Status Run();

    Rank* rank_ = nullptr;
    int64_t* number_ = nullptr;
    double ratio_ = 0;
    StepCosts costs_;
    bool behind_ = false;  // step_ has rows that the head has not read
    StepData step_;
    std::vector<Row> rows_;
    std::vector<Going> going_;  // those with the most guesses first
    std::vector<float> logits_;
    bool warned_ = false;
};

}  // namespace weft::engine
