// DraftHead: drafts with the model's own multi-token prediction layer or a separate head
// (model/draft_head.h). The head runs on all ranks, which shard it like the other layers.
//
// After a step of the model, the head runs once over all rows of that step, including prompt rows.
// The input of a row is the model's hidden states and the token that follows the row. The head's KV
// cache thus has a row wherever the model's KV cache has one, on the same pages; the prefix cache,
// page copies, preemption and recovery serve both caches. (If two texts share a page, the head's
// rows come from the first text. The row before the first difference of the texts uses the first
// text's next token, so it is wrong for the second text. This affects only drafts.) The output rows
// of this run give the first drafted token of each text. Each further run has one row per text and
// gives one more token per text. The next step overwrites the rows of rejected tokens.
//
// The run of a DFlash head over the step's rows only writes its cache, of which row i depends on
// the model's row i alone. One further run then drafts a block per text, with as many mask tokens
// as in training if there are pages and rows for them; the head's layers see the number of masks.
//
// DraftLength chooses the number of drafted tokens, as for a draft model. Thread: as Rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafts/drafter.h"
#include "engine/rank/rank.h"
#include "engine/rank/step_message.h"

namespace weft::engine {

// Checks, before anything starts, that the job's model has such a layer. Reads the model's header.
// Errors: kUsage.
Status CheckDraftHead(const Job& job);

class DraftHead final : public Drafter {
  public:
    // rank: the job's rank 0; Job::draft_head must be set.
    explicit DraftHead(Rank& rank) { Use(rank); }
    Status Serve(Rank& rank) override {
        Use(rank);
        return {};
    }
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }
    bool at_once() const override { return rank_->block_rows() > 0; }

    // BeginStep and AddText record the last step, before another step runs. Call AddText once per
    // sequence, in the step's order. text: all tokens of the sequence, including the one drawn
    // after the step; id: of the request, or 0 if the sequence has no drafts.
    void BeginStep(const StepData& step);
    void AddText(int64_t id, std::span<const int32_t> text);
    // Runs the head over the recorded step's rows, unless Guess has already done so.
    Status Follow();
    // Errors: as Drafter. A text whose last row is not in the recorded step gets no draft.
    Status Guess(std::span<const DraftText> texts) override;
    // number: the engine's counter of steps; each run of the head increases it.
    void SetNumber(int64_t* number) { number_ = number; }

  private:
    // Place of a text's last row in the step.
    struct Row {
        int64_t id = 0;
        int32_t row = 0, position = 0, adapter = 0;
    };
    // A text that is being drafted.
    struct Going {
        const DraftText* text = nullptr;
        Row at;
        std::vector<int32_t> tokens;
        Sampler sampler{SamplerOptions()};
        bool over = false;
    };
    void Use(Rank& rank);
    const Row* Find(int64_t id) const;
    void Gather(std::span<const DraftText> texts);
    void AddOutput(int32_t row, size_t index, int64_t place);
    Status Draw();
    void StartRun();
    static StepData::Sequence SequenceOf(const Going& going);
    void NextRows(size_t count);
    void NextBlocks();
    Status OneByOne();
    Status AtOnce();
    void RequestRows(int64_t vocab);
    Status Run();

    Rank* rank_ = nullptr;
    int64_t* number_ = nullptr;
    double ratio_ = 0;
    StepCosts costs_;
    bool behind_ = false;  // step_ has rows that the head has not read
    StepData step_;
    std::vector<Row> rows_;
    std::vector<Going> going_;  // most drafts first
    // For each output row of the next run: the index in going_, and how many tokens of that text
    // are drawn before it.
    struct Output {
        size_t index;
        int64_t place;
    };
    std::vector<Output> outputs_;
    std::vector<float> logits_;
    bool warned_ = false;
};

}  // namespace weft::engine
