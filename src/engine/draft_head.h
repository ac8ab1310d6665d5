// DraftHead: drafts with the model's own multi-token prediction layer (model/draft_head.h). The
// head runs on all ranks, which shard it like the other layers.
//
// The head runs after the step that computed its rows: once over all rows of that step, prompts
// included. Each row takes the token that followed it. The head's KV cache thus has a row wherever
// the model's has one, on the same pages; the prefix cache, page copies, preemption and recovery
// serve both. (A page that two texts share holds the next token of the first text, so where the
// texts part, one row of the head's cache is wrong for the second. This affects only drafts.) The
// output rows of the first run give the first drafts. Each further run has one row per text and
// gives one more draft per text. The next step overwrites the rows of rejected drafts.
//
// Number of drafts: as for a draft model (DraftLength). Thread: as Rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/drafter.h"
#include "engine/rank.h"
#include "engine/step_message.h"

namespace weft::engine {

// Checks, before anything starts, that the job's model has a head. Reads its header. Errors:
// kUsage.
Status CheckDraftHead(const Job& job);

class DraftHead final : public Drafter {
  public:
    // rank: the job's rank 0; the job has Job::draft_head.
    explicit DraftHead(Rank& rank) { Serve(rank); }
    void Serve(Rank& rank) override;
    double ratio() const override { return ratio_; }
    const StepCosts& costs() const override { return costs_; }

    // Records what the last step computed, before another step runs. AddText: once per sequence, in
    // the step's order. text: its tokens, including those from the step; id: 0 if the sequence has
    // no drafts.
    void BeginStep(const StepData& step);
    void AddText(int64_t id, std::span<const int32_t> text);
    // Runs the head over that step's rows, unless Guess already has.
    Status Follow();
    // Errors: as Drafter. A text without a last token in the last step gets no draft.
    Status Guess(std::span<const DraftText> texts) override;
    // number: counter of steps; the head's runs increase it.
    void SetNumber(int64_t* number) { number_ = number; }

  private:
    // Place of a text's last token in the step.
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
    std::vector<Going> going_;  // most drafts first
    std::vector<float> logits_;
    bool warned_ = false;
};

}  // namespace weft::engine
