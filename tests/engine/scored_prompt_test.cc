// Prompts with token scores: they need logits of every row, and a step has few of these.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch/scheduler.h"

namespace weft::engine {
namespace {

constexpr int64_t kSlots = 8, kStepRows = 64, kPages = 1000;

class ScoredPrompts : public testing::Test {
  protected:
    struct Job {
        Sequence sequence;
        int64_t prompt = 0, say = 0, said = 0, ended_at = -1;
        std::vector<int64_t> scored{};  // positions with logits
    };

    Job& Submit(const std::string& key, int64_t tokens, int64_t say, bool scored) {
        auto job = std::make_unique<Job>();
        job->sequence.id = static_cast<int64_t>(jobs_.size()) + 1;
        for (int64_t i = 0; i < tokens; ++i) {
            job->sequence.tokens.push_back(static_cast<int32_t>(100 * job->sequence.id + i % 50));
        }
        job->sequence.key = key;
        job->sequence.score_from = scored ? 0 : Sequence::kNotScored;
        job->prompt = tokens;
        job->say = say;
        scheduler_.Add(&job->sequence);
        jobs_.push_back(std::move(job));
        return *jobs_.back();
    }

    // Runs one step. Like the engine, stops requesting scores when all have arrived.
    void Step() {
        StepData step;
        std::vector<PlannedRows> planned;
        ASSERT_TRUE(scheduler_.Plan(step, planned));
        ++steps_;
        ASSERT_LE(step.tokens.size(), static_cast<size_t>(kStepRows));
        ASSERT_LE(step.output_rows.size(), static_cast<size_t>(kSlots));
        for (size_t i = 0; i < planned.size(); ++i) Note(step, step.sequences[i], planned[i]);
        scheduler_.Commit(planned);
        for (const PlannedRows& plan : planned) {
            Job& job = *jobs_[static_cast<size_t>(plan.sequence->id - 1)];
            rows_[job.sequence.key] += plan.rows;
            if (plan.output < 0) continue;
            job.sequence.score_from = Sequence::kNotScored;
            job.sequence.tokens.push_back(7);
            if (++job.said < job.say) continue;
            job.ended_at = steps_;
            scheduler_.Remove(&job.sequence);
        }
    }
    void Note(const StepData& step, const StepData::Sequence& rows, const PlannedRows& plan) {
        Job& job = *jobs_[static_cast<size_t>(plan.sequence->id - 1)];
        EXPECT_TRUE(job.sequence.scored() || plan.score_rows == 0);
        for (int32_t i = 0; i < plan.score_rows; ++i) {
            const auto output = static_cast<size_t>(plan.scores + i);
            ASSERT_LT(output, step.output_rows.size());
            ASSERT_EQ(step.output_rows[output], rows.row_begin + plan.score_begin + i);
            job.scored.push_back(rows.position + plan.score_begin + i);
        }
        if (plan.output < 0) return;
        ASSERT_LT(static_cast<size_t>(plan.output), step.output_rows.size());
        ASSERT_EQ(step.output_rows[static_cast<size_t>(plan.output)],
                  rows.row_begin + rows.row_count - 1);
    }
    void Steps(int64_t count) {
        for (int64_t i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(Step());
    }
    // Steps until it has ended; -1: more than `most`.
    int64_t StepsUntilEnd(const Job& job, int64_t most) {
        const int64_t begin = steps_;
        while (job.ended_at < 0 && steps_ - begin < most && !HasFatalFailure()) Step();
        return job.ended_at < 0 ? -1 : job.ended_at - begin;
    }

    Scheduler scheduler_{{kSlots, kStepRows, kPages, 16, true}};
    std::vector<std::unique_ptr<Job>> jobs_;
    std::map<std::string, int64_t> rows_;  // by key
    int64_t steps_ = 0;
};

TEST_F(ScoredPrompts, EachRowHasLogitsOnce) {
    for (const int64_t tokens : {1, 2, 8, 9, 100}) {
        SCOPED_TRACE(tokens);
        const Job& job = Submit("a", tokens, 1, true);
        EXPECT_EQ(StepsUntilEnd(job, 100), (tokens + kSlots - 1) / kSlots) << "alone";
        ASSERT_EQ(std::ssize(job.scored), tokens - 1);
        for (int64_t i = 0; i + 1 < tokens; ++i) EXPECT_EQ(job.scored[static_cast<size_t>(i)], i);
    }
}

TEST_F(ScoredPrompts, InCompanyEachRowHasLogitsOnce) {
    for (int64_t i = 0; i < 6; ++i) Submit(i % 2 == 0 ? "a" : "b", 30 + i, 3, i != 2);
    ASSERT_NO_FATAL_FAILURE(Steps(1));
    for (const auto& job : jobs_) EXPECT_TRUE(job->sequence.running);
    while (!scheduler_.idle() && steps_ < 500) ASSERT_NO_FATAL_FAILURE(Step());
    for (const auto& job : jobs_) {
        EXPECT_GE(job->ended_at, 0);
        EXPECT_EQ(std::ssize(job->scored), job->sequence.id == 3 ? 0 : job->prompt - 1);
    }
}

TEST_F(ScoredPrompts, OthersGetTheirRowsAndTokensAtOnce) {
    for (int64_t i = 0; i < 32; ++i) Submit("greedy", 400, 1, true);
    ASSERT_NO_FATAL_FAILURE(Steps(5));
    EXPECT_EQ(StepsUntilEnd(Submit("modest", 1, 1, false), 10), 1);
    EXPECT_EQ(StepsUntilEnd(Submit("modest", 32, 1, false), 10), 1);
    EXPECT_EQ(StepsUntilEnd(Submit("modest", 8, 5, false), 10), 5);
    EXPECT_EQ(StepsUntilEnd(Submit("modest", 1, 1, true), 10), 1);
    // Other prompts get rows that the scored prompts cannot use.
    rows_.clear();
    Submit("modest", 4000, 1, false);
    ASSERT_NO_FATAL_FAILURE(Steps(40));
    EXPECT_GE(rows_["modest"], 40 * (kStepRows - kSlots));
    EXPECT_GT(rows_["greedy"], 0);
    // All scored prompts end.
    while (!scheduler_.idle() && steps_ < 5000) ASSERT_NO_FATAL_FAILURE(Step());
    for (const auto& job : jobs_) EXPECT_GE(job->ended_at, 0);
}

// Later prompts wait for the first one and use its results.
TEST_F(ScoredPrompts, PromptsOfOneKeyAreScoredInTurn) {
    for (int64_t i = 0; i < 4; ++i) Submit("a", 40, 1, true);
    for (int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(StepsUntilEnd(*jobs_[static_cast<size_t>(i)], 5), 5) << i;
    }
}

TEST_F(ScoredPrompts, KeysShareTheRowsOfLogits) {
    for (int64_t i = 0; i < 32; ++i) Submit("greedy", 400, 1, true);
    ASSERT_NO_FATAL_FAILURE(Steps(5));
    EXPECT_EQ(StepsUntilEnd(Submit("modest", 40, 1, true), 20), 40 / (kSlots / 2));
    rows_.clear();
    for (int64_t i = 0; i < 32; ++i) Submit("modest", 400, 1, true);
    ASSERT_NO_FATAL_FAILURE(Steps(100));
    EXPECT_EQ(rows_["greedy"], 100 * kSlots / 2);
    EXPECT_EQ(rows_["modest"], 100 * kSlots / 2);
}

// Known scores need no logits, so the KV cache may supply the rows before them.
TEST_F(ScoredPrompts, KnownScoresNeedNoLogits) {
    Job& first = Submit("a", 100, 1, true);
    EXPECT_EQ(StepsUntilEnd(first, 100), 13);
    const auto again = [&](int64_t known, const std::string& tenant) -> Job& {
        Job& job = Submit("a", 100, 1, true);
        std::copy_n(first.sequence.tokens.begin(), 100, job.sequence.tokens.begin());
        job.sequence.score_from = known;
        job.sequence.tenant = tenant;
        return job;
    };
    for (const int64_t known : {0, 1, 37, 48, 90, 97, 98}) {
        SCOPED_TRACE(known);
        const Job& job = again(known, "");
        EXPECT_EQ(StepsUntilEnd(job, 100), (100 - known + kSlots - 1) / kSlots);
        EXPECT_EQ(job.sequence.from_cache, known);
        ASSERT_EQ(std::ssize(job.scored), 99 - known);
        EXPECT_EQ(job.scored.front(), known);
        EXPECT_EQ(job.scored.back(), 98);
    }
    const Job& stranger = again(96, "another");
    EXPECT_EQ(StepsUntilEnd(stranger, 100), 2) << "rows without logits are many in a step";
    EXPECT_EQ(stranger.sequence.from_cache, 0);
    EXPECT_EQ(stranger.scored, (std::vector<int64_t>{96, 97, 98}));
}

}  // namespace
}  // namespace weft::engine
