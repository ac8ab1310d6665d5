// The scheduler over a simulated KV cache (support/scheduler_soak.h), and its plans.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "support/nightly.h"
#include "support/scheduler_soak.h"

namespace weft::engine {
namespace {

using soak::kSchedulerPage, soak::Soak, soak::SoakOptions;

// Seeds of each soak.
uint32_t Seeds(uint32_t nightly) {
    return test::Nightly() ? nightly : nightly / 4;
}

TEST(Scheduler, NoSequenceEverSeesTheTextOfAnother) {
    for (uint32_t seed = 0; seed < Seeds(20); ++seed) {
        SCOPED_TRACE(seed);
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 12}).Run());
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 40}).Run());
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {false, 12}).Run());
    }
}

TEST(Scheduler, NorItsRecurrentState) {
    for (const int64_t kept : {0, 1, 5}) {
        int64_t found = 0;
        for (uint32_t seed = 0; seed < Seeds(12); ++seed) {
            for (const int64_t more : {0, 3, 9}) {
                for (const size_t steps : {1u, 3u}) {
                    SCOPED_TRACE(testing::Message() << "seed " << seed << ", kept " << kept
                                                    << ", more slots " << more);
                    const int64_t slots = 4 + kept + more;
                    for (const uint32_t hits : {0u, 2u, 3u}) {
                        SoakOptions options{true, 40, 6, hits, steps, slots, kept};
                        Soak soak(seed, options);
                        ASSERT_NO_FATAL_FAILURE(soak.Run());
                        found += soak.hits();
                        options.pages = 12;
                        ASSERT_NO_FATAL_FAILURE(Soak(seed, options).Run());
                    }
                    ASSERT_NO_FATAL_FAILURE(
                        Soak(seed, {false, 12, 0, 0, steps, slots, kept}).Run());
                }
            }
        }
        EXPECT_EQ(found > 0, kept > 0);
    }
}

// With pages kept outside of the KV cache, some of which have been removed when they are read.
TEST(Scheduler, NorAKeptPageOfAnother) {
    int64_t restored = 0, states = 0;
    for (uint32_t seed = 0; seed < Seeds(20); ++seed) {
        for (const size_t steps : {1u, 3u}) {
            for (const int64_t pages : {12, 40}) {
                SCOPED_TRACE(testing::Message() << "seed " << seed << ", steps at once " << steps
                                                << ", pages " << pages);
                SoakOptions options{true, pages, 6, 2, steps};
                options.keeps = true;
                Soak rows(seed, options);
                ASSERT_NO_FATAL_FAILURE(rows.Run());
                restored += rows.restored();
                options.state_slots = 16;
                options.kept_states = 5;
                Soak slots(seed, options);
                ASSERT_NO_FATAL_FAILURE(slots.Run());
                states += slots.restored();
            }
        }
    }
    EXPECT_GT(restored, 0);
    EXPECT_GT(states, 0);
}

TEST(Scheduler, NorThatOfGuessesThatDidNotComeTrue) {
    for (uint32_t seed = 0; seed < Seeds(12); ++seed) {
        for (const uint32_t hits : {0u, 1u, 2u, 3u}) {
            for (const size_t steps : {1u, 2u, 3u, 4u}) {
                SCOPED_TRACE(testing::Message() << "seed " << seed << ", hits " << hits
                                                << ", steps at once " << steps);
                ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 12, 6, hits, steps}).Run());
                ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 40, 6, hits, steps}).Run());
                ASSERT_NO_FATAL_FAILURE(Soak(seed, {false, 12, 6, hits, steps}).Run());
            }
        }
    }
}

// Scored prompts compete for rows of logits, and keys for slots, with steps in flight.
TEST(Scheduler, ScoredPromptsAndUnlikeKeys) {
    for (uint32_t seed = 0; seed < Seeds(80); ++seed) {
        for (const size_t steps : {1u, 2u, 3u}) {
            for (const bool cache : {false, true}) {
                const int64_t drafts = seed % 5 == 0 ? 0 : 3;
                SCOPED_TRACE(testing::Message() << "seed " << seed << ", steps at once " << steps
                                                << ", prefix cache " << cache);
                SoakOptions options{cache, 12, drafts, 2, steps};
                options.scores = options.odd = true;
                options.keeps = cache && seed % 2 == 0;
                options.state_slots = seed % 3 == 0 ? 9 : 0;
                options.kept_states = seed % 3 == 0 ? 5 : 0;
                ASSERT_NO_FATAL_FAILURE(Soak(seed, options).Run());
            }
        }
    }
}

// A store that keeps no pages.
struct NothingKept final : KeptPages {
    int64_t Leading(std::span<const PageKey>) const override { return 0; }
    bool HasState(const PageKey&) const override { return false; }
};

// Sequences of one key or of as many keys, which share most of their text and wait for pages: how
// often kept pages are looked up for a step.
int64_t LooksPerStep(int64_t waiting, bool one_key) {
    constexpr int64_t kShared = 20 * kSchedulerPage, kSteps = 8;
    Scheduler scheduler({4, 64, 48, kSchedulerPage, true});
    scheduler.KeepPages(PageKeys("job", "", kSchedulerPage));
    std::vector<std::unique_ptr<Sequence>> all;
    const auto add = [&](int64_t own) {
        all.push_back(std::make_unique<Sequence>());
        Sequence& s = *all.back();
        s.id = std::ssize(all);
        s.key = one_key ? "" : std::to_string(s.id);
        for (int64_t i = 0; i < kShared + own; ++i) {
            s.tokens.push_back(static_cast<int32_t>(i < kShared ? i : 1000 * s.id + i));
        }
        scheduler.Add(&s);
    };
    StepData step;
    std::vector<PlannedRows> planned;
    const auto run = [&] {
        RestorePlan plan;
        while (scheduler.PlanRestore(NothingKept(), 4, plan)) scheduler.EndRestore(plan, 0);
        if (!scheduler.Plan(step, planned)) return;
        scheduler.Commit(planned);
        for (const PlannedRows& each : planned) {
            if (each.output >= 0) each.sequence->tokens.push_back(7);
        }
    };
    for (int i = 0; i < 2; ++i) add(10 * kSchedulerPage);
    for (int i = 0; i < 12; ++i) run();
    for (int64_t i = 0; i < waiting; ++i) add(14 * kSchedulerPage);
    for (int i = 0; i < 2; ++i) run();
    const int64_t before = scheduler.stats().kept_tries;
    for (int i = 0; i < kSteps; ++i) run();
    EXPECT_GE(scheduler.stats().waiting, waiting);
    const int64_t looks = scheduler.stats().kept_tries - before;
    for (const auto& s : all) scheduler.Remove(s.get());
    return (looks + kSteps - 1) / kSteps;
}

// The work of a step does not grow with the queue.
TEST(Scheduler, AQueueCostsNoLooksForKeptPages) {
    EXPECT_EQ(LooksPerStep(10, true), 1);
    EXPECT_EQ(LooksPerStep(1000, true), 1);
    EXPECT_EQ(LooksPerStep(100, false), LooksPerStep(1000, false));
    EXPECT_LE(LooksPerStep(1000, false), 16);
}

// Pages that a sequence found in the prefix cache are named when it leaves: they were used.
TEST(Scheduler, TellsWhichPagesWereUsed) {
    Scheduler scheduler({4, 64, 48, kSchedulerPage, true});
    const PageKeys keys("job", "", kSchedulerPage);
    scheduler.KeepPages(keys);
    StepData step;
    std::vector<PlannedRows> planned;
    std::vector<PageKey> expected;
    for (int64_t id = 1; id <= 2; ++id) {
        Sequence s;
        s.id = id;
        s.tokens.assign(4 * kSchedulerPage + 2, 7);
        keys.Extend(s.space(), s.tokens, 4, expected);
        scheduler.Add(&s);
        RestorePlan plan;
        while (scheduler.PlanRestore(NothingKept(), 4, plan)) scheduler.EndRestore(plan, 0);
        ASSERT_TRUE(scheduler.Plan(step, planned));
        scheduler.Commit(planned);
        EXPECT_EQ(scheduler.TakeSaves().size(), id == 1 ? 4u : 0u);
        const std::vector<int32_t> pages = s.pages;
        scheduler.Remove(&s);
        const auto used = scheduler.TakeSaves();
        ASSERT_EQ(used.size(), 4u) << id;
        for (size_t i = 0; i < used.size(); ++i) {
            EXPECT_EQ(used[i].key, expected[i]);
            EXPECT_EQ(used[i].place, pages[i]);
            EXPECT_TRUE(used[i].is_used);
        }
    }
}

// Adds a sequence of `tokens` tokens, all equal to `first`.
std::unique_ptr<Sequence> Add(Scheduler& scheduler, int64_t id, int64_t tokens, int32_t first,
                              const std::string& key = "", int priority = 0) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->tokens.assign(static_cast<size_t>(tokens), first);
    sequence->key = key;
    sequence->priority = priority;
    scheduler.Add(sequence.get());
    return sequence;
}

int32_t RowsOf(const std::vector<PlannedRows>& planned, int64_t id) {
    for (const PlannedRows& plan : planned) {
        if (plan.sequence->id == id) return plan.rows;
    }
    return 0;
}

TEST(Scheduler, LongPromptDelaysNoSequence) {
    Scheduler scheduler({4, 8, 100, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto talker = Add(scheduler, 1, 3, 1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    talker->tokens.push_back(5);
    const auto reader = Add(scheduler, 2, 30, 2);
    for (int64_t read = 0; read < 30; read += 7) {
        ASSERT_TRUE(scheduler.Plan(step, planned));
        EXPECT_EQ(RowsOf(planned, 1), 1);
        EXPECT_EQ(RowsOf(planned, 2), std::min<int64_t>(7, 30 - read));
        EXPECT_EQ(step.output_rows.size(), read + 7 >= 30 ? 2u : 1u);
        scheduler.Commit(planned);
        talker->tokens.push_back(5);
    }
}

// This also holds when a preempted sequence is recomputed with its generated tokens.
TEST(Scheduler, OnlyRowsOfALongPromptAreNarrow) {
    Scheduler scheduler({4, 8, 100, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    auto reader = std::make_unique<Sequence>();
    reader->tokens.assign(13, 2);
    reader->narrow_tokens = 10;  // three generated tokens follow
    scheduler.Add(reader.get());
    const auto other = Add(scheduler, 2, 3, 1);
    std::vector<int32_t> narrow;
    for (int steps = 0; steps < 3; ++steps) {
        ASSERT_TRUE(scheduler.Plan(step, planned));
        for (size_t i = 0; i < planned.size(); ++i) {
            const int32_t rows = step.sequences[i].prompt_rows;
            if (planned[i].sequence == reader.get()) narrow.push_back(rows);
            if (planned[i].sequence == other.get()) {
                EXPECT_EQ(rows, 0);
            }
        }
        scheduler.Commit(planned);
        if (reader->pending() == 0) reader->tokens.push_back(5);
        if (other->pending() == 0) other->tokens.push_back(5);
    }
    EXPECT_EQ(std::accumulate(narrow.begin(), narrow.end(), 0), 10);
    EXPECT_EQ(narrow.back(), 0);
}

TEST(Scheduler, ASharedPrefixIsComputedOnce) {
    Scheduler scheduler({4, 64, 100, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto first = Add(scheduler, 1, 21, 7);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    const auto second = Add(scheduler, 2, 20, 7);
    first->tokens.push_back(1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    // 19 of 20 tokens may come from the cache: four whole pages of four, and three of the fifth.
    EXPECT_EQ(RowsOf(planned, 2), 1);
    EXPECT_EQ(second->from_cache, 19);
    EXPECT_EQ(scheduler.stats().cache_hit, 19);
    ASSERT_EQ(step.copies.size(), 1u);
    EXPECT_EQ(step.copies[0].from, first->pages[4]);
    EXPECT_EQ(step.copies[0].to, second->pages[4]);
    EXPECT_EQ(first->pages[3], second->pages[3]);
    EXPECT_NE(first->pages[4], second->pages[4]);
}

// The partly filled last page of a prompt is shared with requests of the same beginning, while the
// first request generates and after it has ended.
TEST(Scheduler, APageThatIsNotFullIsSharedToo) {
    Scheduler scheduler({4, 64, 100, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto first = Add(scheduler, 1, 7, 7);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    first->tokens.push_back(1);
    const auto second = Add(scheduler, 2, 30, 7);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(second->from_cache, 7);
    EXPECT_EQ(RowsOf(planned, 2), 23);
    scheduler.Commit(planned);
    scheduler.Remove(second.get());
    scheduler.Remove(first.get());
    const auto third = Add(scheduler, 3, 7, 7);
    third->tokens.insert(third->tokens.end(), {1, 1, 1});
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(third->from_cache, 8) << "the token that was said, too";
}

// If keeping the source page of a copy would leave no page for the sequence, it is not kept.
TEST(Scheduler, WithoutRoomForBothPagesNothingIsCopied) {
    Scheduler scheduler({4, 64, 3, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto first = Add(scheduler, 1, 6, 7);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    scheduler.Remove(first.get());
    const auto second = Add(scheduler, 2, 11, 7);  // needs all three pages
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_TRUE(step.copies.empty());
    EXPECT_EQ(second->from_cache, 4);
    EXPECT_EQ(RowsOf(planned, 2), 7);
}

TEST(Scheduler, LastSequenceIsPreemptedFirst) {
    Scheduler scheduler({4, 16, 6, kSchedulerPage, false});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto first = Add(scheduler, 1, 8, 1);
    const auto second = Add(scheduler, 2, 8, 2);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    EXPECT_EQ(planned.size(), 2u);
    for (int i = 0; i < 5; ++i) {
        for (const PlannedRows& plan : planned) plan.sequence->tokens.push_back(3);
        ASSERT_TRUE(scheduler.Plan(step, planned));
        EXPECT_EQ(RowsOf(planned, 1), 1);
        scheduler.Commit(planned);
    }
    EXPECT_GE(second->preempted, 1);
    EXPECT_EQ(first->preempted, 0);
}

// Drafts use the free rows of a step, or half of them if a prompt waits for prefill.
TEST(Scheduler, DraftsDelayNoSequence) {
    Scheduler scheduler({4, 12, 100, kSchedulerPage, false, 100});
    StepData step;
    std::vector<PlannedRows> planned;
    std::vector<std::unique_ptr<Sequence>> talkers;
    for (int64_t id = 1; id <= 2; ++id) talkers.push_back(Add(scheduler, id, 3, 1));
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    for (const auto& talker : talkers) {
        talker->tokens.push_back(5);
        talker->draft.assign(8, 6);
    }
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 9);
    EXPECT_EQ(RowsOf(planned, 2), 3);
    EXPECT_EQ(step.output_rows.size(), 12u);
    const auto reader = Add(scheduler, 3, 30, 2);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 6);
    EXPECT_EQ(RowsOf(planned, 2), 1);
    EXPECT_EQ(RowsOf(planned, 3), 5);
}

// Encoders: a step has whole texts, in order, as many as fit.
TEST(Scheduler, WholePrompts) {
    ScheduleOptions options{8, 32, 100, kSchedulerPage, false};
    options.whole_prompts = true;
    Scheduler scheduler(options);
    std::vector<std::unique_ptr<Sequence>> texts;
    for (const int64_t tokens : {20, 13, 12, 32, 1, 31}) {
        texts.push_back(Add(scheduler, std::ssize(texts) + 1, tokens, 1));
    }
    StepData step;
    std::vector<PlannedRows> planned;
    size_t done = 0;
    for (int steps = 0; done < texts.size(); ++steps) {
        ASSERT_LT(steps, 6);
        ASSERT_TRUE(scheduler.Plan(step, planned));
        scheduler.Commit(planned);
        for (const PlannedRows& plan : planned) {
            EXPECT_EQ(plan.rows, std::ssize(plan.sequence->tokens));
            EXPECT_EQ(plan.sequence->pending(), 0);
            scheduler.Remove(plan.sequence);
            ++done;
        }
        EXPECT_LE(step.tokens.size(), 32u);
        if (steps == 0) {
            EXPECT_EQ(planned.size(), 1u);  // the next text does not fit
        }
    }
}

// A prompt alone in a pipeline is split, so that all stages work on it at once; with other
// sequences it is not.
TEST(Scheduler, StagesWorkOnPartsOfAPromptAtOnce) {
    EXPECT_EQ(PromptChunk(500, 512, 1), 512);
    EXPECT_EQ(PromptChunk(500, 512, 2), 64);
    EXPECT_EQ(PromptChunk(1600, 512, 2), 200);
    EXPECT_EQ(PromptChunk(16000, 512, 2), 512);
    EXPECT_EQ(PromptChunk(500, 32, 2), 32);
    Scheduler scheduler({4, 512, 1000, kSchedulerPage, false});
    scheduler.ShareOver(2, 2);
    StepData step;
    std::vector<PlannedRows> planned;
    const auto alone = Add(scheduler, 1, 800, 7);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 100);
    scheduler.Commit(planned);
    const auto second = Add(scheduler, 2, 30, 1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 482);
    EXPECT_EQ(RowsOf(planned, 2), 30);
}

// The draft of a lost step is verified after all tokens before it are computed again.
TEST(Scheduler, ALostDraftWaitsForItsToken) {
    Scheduler scheduler({1, 16, 100, kSchedulerPage, false, 8});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto s = Add(scheduler, 1, 9, 1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    s->tokens.push_back(5);
    s->draft = {6, 7, 8};
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 4);
    scheduler.Forget(100);
    s->last_apart = true;
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 9);
    EXPECT_TRUE(step.output_rows.empty());
    scheduler.Commit(planned);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(step.tokens, (std::vector<int32_t>{5, 6, 7, 8}));
    EXPECT_EQ(step.output_rows.size(), 4u);
}

// After a loss, the ranks may have a smaller cache.
TEST(Scheduler, ALossMayLeaveFewerPages) {
    Scheduler scheduler({2, 16, 8, kSchedulerPage, true});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto s = Add(scheduler, 1, 9, 1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    scheduler.Forget(4);
    EXPECT_EQ(scheduler.stats().pages, 4);
    EXPECT_EQ(scheduler.stats().free_pages, 4);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 9);
    for (const int32_t page : s->pages) EXPECT_LT(page, 4);
}

// A draft neither preempts a sequence nor keeps a page.
TEST(Scheduler, DraftsTakeNoPageFromAnybody) {
    Scheduler scheduler({4, 32, 4, kSchedulerPage, false, 32});
    StepData step;
    std::vector<PlannedRows> planned;
    const auto first = Add(scheduler, 1, 7, 1), second = Add(scheduler, 2, 6, 1);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    for (Sequence* s : {first.get(), second.get()}) {
        s->tokens.push_back(5);
        s->draft.assign(8, 6);
    }
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 1) << "its page is full";
    EXPECT_EQ(RowsOf(planned, 2), 2) << "there is room for one guess";
    scheduler.Commit(planned);
    EXPECT_EQ(second->computed, 7) << "nobody has said that the guess is right";
    EXPECT_EQ(scheduler.stats().preemptions, 0);
}

TEST(Scheduler, KeysShareFairlyAndPriorityGoesFirst) {
    Scheduler scheduler({1, 4, 100, kSchedulerPage, false});
    StepData step;
    std::vector<PlannedRows> planned;
    std::vector<std::unique_ptr<Sequence>> all;
    for (int64_t id = 1; id <= 4; ++id) all.push_back(Add(scheduler, id, 4, 1, "greedy"));
    all.push_back(Add(scheduler, 5, 4, 1, "modest"));
    all.push_back(Add(scheduler, 6, 4, 1, "greedy", 1));
    std::vector<int64_t> order;
    while (scheduler.Plan(step, planned)) {
        scheduler.Commit(planned);
        order.push_back(planned[0].sequence->id);
        scheduler.Remove(planned[0].sequence);
    }
    EXPECT_EQ(order, (std::vector<int64_t>{6, 5, 1, 2, 3, 4}));
}

// Keys that request as much as possible, and the service of another key.
class FairShares : public testing::Test {
  protected:
    struct Ask {
        std::string key;
        int64_t tokens = 3, say = INT64_MAX;  // of the prompt; tokens to generate
        int64_t group = 0;
        int priority = 0;
        double weight = 1;
        int64_t limit = 0;
    };
    struct Job {
        Sequence sequence;
        int64_t say = 0, said = 0, ended_at = -1;
        int32_t rows = 0;  // in the last step
    };

    void Open(int64_t max_seqs, int64_t step_tokens = 64, int64_t pages = 1000,
              bool prefix_cache = true) {
        options_ = {max_seqs, step_tokens, pages, kSchedulerPage, prefix_cache};
        scheduler_ = std::make_unique<Scheduler>(options_);
        cache_ = std::make_unique<soak::SimulatedCache>(pages);
    }
    Job& Submit(const Ask& ask) {
        auto job = std::make_unique<Job>();
        Sequence& s = job->sequence;
        s.id = static_cast<int64_t>(jobs_.size()) + 1;
        for (int64_t i = 0; i < ask.tokens; ++i) {
            s.tokens.push_back(static_cast<int32_t>(100 * s.id + i % 50));
        }
        s.key = ask.key;
        s.group = ask.group;
        s.priority = ask.priority;
        s.weight = ask.weight;
        s.limit = ask.limit;
        job->say = ask.say;
        scheduler_->Add(&s);
        jobs_.push_back(std::move(job));
        return *jobs_.back();
    }
    void Submit(int64_t count, const Ask& ask) {
        for (int64_t i = 0; i < count; ++i) Submit(ask);
    }
    // Runs one step; finished sequences leave.
    void Step() {
        StepData step;
        std::vector<PlannedRows> planned;
        ASSERT_TRUE(scheduler_->Plan(step, planned));
        ++steps_;
        ASSERT_LE(static_cast<int64_t>(step.tokens.size()), options_.step_tokens);
        ASSERT_NO_FATAL_FAILURE(cache_->Run(step, planned));
        scheduler_->Commit(planned);
        for (const auto& job : jobs_) job->rows = 0;
        for (const PlannedRows& plan : planned) {
            Job& job = *jobs_[static_cast<size_t>(plan.sequence->id - 1)];
            job.rows = plan.rows;
            rows_[job.sequence.key] += plan.rows;
            if (plan.output < 0) continue;
            job.sequence.tokens.push_back(7);
            if (++job.said < job.say) continue;
            job.ended_at = steps_;
            scheduler_->Remove(&job.sequence);
        }
    }
    void Steps(int64_t count) {
        for (int64_t i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(Step());
    }
    // Steps until it has ended; -1: more than `most`.
    int64_t StepsUntilEnd(const Job& job, int64_t most) {
        const int64_t begin = steps_;
        while (job.ended_at < 0 && steps_ - begin < most) {
            Step();
            if (HasFatalFailure()) return -1;
        }
        return job.ended_at < 0 ? -1 : job.ended_at - begin;
    }
    int64_t Running(const std::string& key) const {
        return std::ranges::count_if(jobs_, [&](const auto& job) {
            return job->ended_at < 0 && job->sequence.running && job->sequence.key == key;
        });
    }

    ScheduleOptions options_;
    std::unique_ptr<Scheduler> scheduler_;
    std::unique_ptr<soak::SimulatedCache> cache_;
    std::vector<std::unique_ptr<Job>> jobs_;
    std::map<std::string, int64_t> rows_;  // by key
    int64_t steps_ = 0;
};

TEST_F(FairShares, ANeighborGetsASlotAtOnce) {
    for (const int64_t slots : {2, 4, 32}) {
        for (const int64_t many : {1, 5}) {  // requests of the greedy key
            SCOPED_TRACE(testing::Message() << slots << " slots, " << many << " requests");
            jobs_.clear();
            Open(slots);
            for (int64_t i = 0; i < many; ++i) {
                Submit(64, {.key = "greedy", .group = many == 1 ? 1 : 0});
            }
            ASSERT_NO_FATAL_FAILURE(Steps(20));
            EXPECT_EQ(Running("greedy"), slots);
            EXPECT_EQ(StepsUntilEnd(Submit({.key = "modest", .say = 1}), 10), 1);
            EXPECT_EQ(StepsUntilEnd(Submit({.key = "modest", .say = 5}), 10), 5);
            ASSERT_NO_FATAL_FAILURE(Steps(1));
            EXPECT_EQ(Running("greedy"), slots) << "the slot is used again";
        }
    }
}

TEST_F(FairShares, KeysTakeTurnsAtASingleSlot) {
    Open(1);
    const Job& greedy = Submit({.key = "greedy"});
    ASSERT_NO_FATAL_FAILURE(Steps(100));
    Submit(3, {.key = "greedy"});
    EXPECT_EQ(StepsUntilEnd(Submit({.key = "modest", .say = 1}), 10), 1);
    const Job& other = Submit({.key = "other"});
    ASSERT_NO_FATAL_FAILURE(Steps(1000));
    EXPECT_GT(greedy.said, 400);
    EXPECT_GT(other.said, 400);
    const int64_t turns = 1000 * Scheduler::kTokenTurn / Scheduler::kTurn;
    EXPECT_LE(scheduler_->stats().preemptions, turns + 3);
    // Thirty keys that never end, and one more.
    for (int i = 0; i < 30; ++i) Submit({.key = std::to_string(i)});
    EXPECT_GT(StepsUntilEnd(Submit({.key = "late", .say = 1}), 32 * 70), 0);
}

TEST_F(FairShares, SlotsAreSharedByWeightAndNotTakenBack) {
    Open(8);
    Submit(20, {.key = "greedy"});
    ASSERT_NO_FATAL_FAILURE(Steps(5));
    Submit(20, {.key = "same"});
    ASSERT_NO_FATAL_FAILURE(Steps(50));
    EXPECT_EQ(Running("greedy"), 4);
    EXPECT_EQ(Running("same"), 4);
    EXPECT_EQ(scheduler_->stats().preemptions, 4);
    Submit(20, {.key = "heavy", .weight = 2});
    Submit(20, {.key = "light", .weight = 0.01});
    ASSERT_NO_FATAL_FAILURE(Steps(50));
    EXPECT_EQ(Running("heavy"), 3);
    EXPECT_EQ(Running("light"), 1) << "no key is left out";
    const int64_t preemptions = scheduler_->stats().preemptions;
    ASSERT_NO_FATAL_FAILURE(Steps(50));
    EXPECT_EQ(scheduler_->stats().preemptions, preemptions) << "nobody is preempted in turns";
}

// Requests of one key, as in a server without keys.
TEST_F(FairShares, RequestsOfOneKeyShareItsSlots) {
    Open(4);
    Submit(64, {.key = "", .group = 1});
    ASSERT_NO_FATAL_FAILURE(Steps(20));
    EXPECT_EQ(StepsUntilEnd(Submit({.key = "", .say = 1}), 10), 1);
    Submit(64, {.key = "", .group = 66});
    ASSERT_NO_FATAL_FAILURE(Steps(20));
    EXPECT_EQ(std::ranges::count_if(jobs_, [](const auto& job) { return job->rows > 0; }), 4);
    EXPECT_GT(jobs_[65]->rows, 0);
    EXPECT_GT(jobs_[66]->rows, 0);
    EXPECT_EQ(jobs_[67]->rows, 0);
}

TEST_F(FairShares, PriorityPreemptsBetweenKeys) {
    Open(4);
    Submit(4, {.key = "a", .priority = 1});
    ASSERT_NO_FATAL_FAILURE(Steps(20));
    const Job& low = Submit({.key = "b", .say = 1});
    EXPECT_EQ(StepsUntilEnd(low, 200), -1) << "lower priority waits";
    Submit(4, {.key = "c", .say = 3, .priority = 2});
    ASSERT_NO_FATAL_FAILURE(Steps(4));
    for (size_t i = 5; i < 9; ++i) EXPECT_LE(jobs_[i]->ended_at, 20 + 200 + 6) << i;
    ASSERT_NO_FATAL_FAILURE(Steps(10));
    EXPECT_EQ(Running("a"), 4);
    EXPECT_EQ(Running("b"), 0);
}

TEST_F(FairShares, ALimitHoldsForSequences) {
    for (const int64_t limit : {2, 3}) {
        jobs_.clear();
        Open(8);
        Submit(64, {.key = "limited", .say = 5, .group = 1, .limit = limit});
        for (int step = 0; step < 30; ++step) {
            ASSERT_NO_FATAL_FAILURE(Step());
            ASSERT_LE(Running("limited"), limit);
        }
        Job& other = Submit({.key = "limited", .say = 1, .group = 65, .limit = limit});
        EXPECT_EQ(StepsUntilEnd(other, 10), 1) << "another request of the key";
        Submit(8, {.key = "free"});
        ASSERT_NO_FATAL_FAILURE(Steps(20));
        EXPECT_EQ(Running("free"), 8 - limit);
        EXPECT_GT(StepsUntilEnd(*jobs_[63], 1000), 0) << "all of them end";
    }
}

TEST_F(FairShares, ALimitOfOneSequence) {
    Open(8);
    Submit(64, {.key = "limited", .say = 3, .group = 1, .limit = 1});
    Submit(8, {.key = "free"});
    int64_t steps = 0;
    for (; !jobs_.empty() && jobs_[63]->ended_at < 0 && steps < 1000; ++steps) {
        ASSERT_NO_FATAL_FAILURE(Step());
        ASSERT_LE(Running("limited"), 1);
    }
    EXPECT_LE(steps, 64 * 3 + 5);
    EXPECT_EQ(Running("free"), 7);
}

// Few sequences hold all pages; slots are free.
TEST_F(FairShares, ANeighborGetsPagesAtOnce) {
    for (const bool prefix_cache : {true, false}) {
        for (const int64_t prompt : {1, 30, 100}) {
            SCOPED_TRACE(testing::Message() << "a prompt of " << prompt);
            jobs_.clear();
            Open(16, 64, 100, prefix_cache);
            Submit(8, {.key = "greedy", .tokens = 90, .group = 1});  // 23 pages each
            ASSERT_NO_FATAL_FAILURE(Steps(20));
            const int64_t before = Running("greedy");
            EXPECT_GE(before, 3);
            const Job& job = Submit({.key = "modest", .tokens = prompt, .say = 3});
            const int64_t steps = StepsUntilEnd(job, 30);
            EXPECT_GT(steps, 0);
            EXPECT_LE(steps, 3 + 2 * prompt / 64 + 3);
            EXPECT_EQ(job.sequence.preempted, 0) << "it is not preempted for who was before it";
        }
    }
}

// Two keys whose sequences do not fit together progress alternately; most of the work is new.
TEST_F(FairShares, LargeSequencesOfTwoKeysTakeTurns) {
    Open(8, 64, 100, false);
    const Job& one = Submit({.key = "one", .tokens = 200, .say = 190});
    const Job& two = Submit({.key = "two", .tokens = 200, .say = 190});
    Submit(4, {.key = "three", .tokens = 8, .say = 10});
    while (one.ended_at < 0 && two.ended_at < 0 && steps_ < 1000) {
        ASSERT_NO_FATAL_FAILURE(Step());
    }
    EXPECT_GT(std::min(one.said, two.said), 30) << "the other one has had a turn";
    const int64_t steps = StepsUntilEnd(one.ended_at < 0 ? one : two, 1000);
    EXPECT_GT(steps, 0);
    EXPECT_LT(steps_, 2 * (190 + 2 * 200 / 64) + 100);
    EXPECT_LT(scheduler_->stats().preemptions, 10);
}

TEST_F(FairShares, ALargePromptIsNotPassedForEver) {
    Open(8, 64, 100, false);
    for (int i = 0; i < 10; ++i) Submit(2, {.key = std::to_string(i), .tokens = 60, .say = 20});
    ASSERT_NO_FATAL_FAILURE(Steps(3));
    const Job& large = Submit({.key = "large", .tokens = 300, .say = 2});
    for (int i = 0; i < 600 && large.ended_at < 0; ++i) {
        if (i % 4 == 0) Submit({.key = std::to_string(i / 4 % 10), .tokens = 60, .say = 20});
        ASSERT_NO_FATAL_FAILURE(Step());
    }
    EXPECT_GT(large.ended_at, 0);
}

// Long prompts, such as embedding requests, fill every step; another key's prompt still gets its
// share of rows.
TEST_F(FairShares, ANeighborGetsRowsAtOnce) {
    for (const int64_t running : {4, 16}) {
        SCOPED_TRACE(running);
        jobs_.clear();
        rows_.clear();
        Open(running, 64, 10'000, false);
        Submit(64, {.key = "greedy", .tokens = 2000, .say = 1, .group = 1});
        ASSERT_NO_FATAL_FAILURE(Steps(5));
        EXPECT_LE(StepsUntilEnd(Submit({.key = "modest", .tokens = 1, .say = 1}), 10), 1);
        EXPECT_LE(StepsUntilEnd(Submit({.key = "modest", .tokens = 32, .say = 1}), 10), 2);
        rows_.clear();
        Submit({.key = "modest", .tokens = 2000, .say = 1});
        Submit({.key = "heavy", .tokens = 2000, .say = 1, .weight = 2});
        ASSERT_NO_FATAL_FAILURE(Steps(40));
        EXPECT_NEAR(static_cast<double>(rows_["modest"]), 40 * 16, 64);
        EXPECT_NEAR(static_cast<double>(rows_["heavy"]), 40 * 32, 128);
        EXPECT_EQ(rows_["modest"] + rows_["heavy"] + rows_["greedy"], 40 * 64) << "no row is idle";
        // The greedy key's next request does not wait for the long prompts of its first one.
        EXPECT_LE(StepsUntilEnd(Submit({.key = "greedy", .tokens = 8, .say = 1}), 10), 2);
    }
}

// Prompts of one key, as in a server without keys.
TEST_F(FairShares, AShortPromptDoesNotWaitForALongOne) {
    Open(16, 64, 10'000, false);
    const Job& large = Submit({.key = "", .tokens = 6400, .say = 1});
    ASSERT_NO_FATAL_FAILURE(Steps(5));
    EXPECT_EQ(large.sequence.computed, 5 * 64);
    EXPECT_LE(StepsUntilEnd(Submit({.key = "", .tokens = 1, .say = 1}), 10), 1);
    EXPECT_LE(StepsUntilEnd(Submit({.key = "", .tokens = 20, .say = 1}), 10), 1);
    EXPECT_LE(StepsUntilEnd(Submit({.key = "", .tokens = 64, .say = 1}), 10), 2);
    // Nor does it if prompts of other lengths are before it.
    Submit({.key = "", .tokens = 3200, .say = 1});
    Submit({.key = "", .tokens = 1600, .say = 1});
    Submit({.key = "", .tokens = 800, .say = 1});
    ASSERT_NO_FATAL_FAILURE(Steps(5));
    EXPECT_LE(StepsUntilEnd(Submit({.key = "", .tokens = 30, .say = 1}), 10), 2);
    // The long prompt gets half of the rows, whatever else arrives.
    const int64_t before = large.sequence.computed;
    for (int step = 0; step < 50; ++step) {
        Submit(2, {.key = "", .tokens = 60, .say = 1});
        ASSERT_NO_FATAL_FAILURE(Step());
    }
    EXPECT_GE(large.sequence.computed - before, 50 * 32);
}

TEST_F(FairShares, EqualPromptsEndInOrderAndNoRowIsIdle) {
    Open(16, 64, 10'000, false);
    for (int i = 0; i < 8; ++i) Submit({.key = "", .tokens = 640, .say = 1});
    ASSERT_NO_FATAL_FAILURE(Steps(80));
    for (int64_t i = 0; i < 8; ++i) {
        EXPECT_NEAR(static_cast<double>(jobs_[static_cast<size_t>(i)]->ended_at),
                    static_cast<double>(10 * (i + 1)), 1);
    }
}

TEST_F(FairShares, NoKeyIsStarved) {
    for (uint32_t seed = 0; seed < 30; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto up_to = [&](uint32_t most) {
            return static_cast<int64_t>(random() % (most + 1));
        };
        jobs_.clear();
        Open(1 + up_to(7), 16 + up_to(48), 60 + up_to(100), up_to(1) == 0);
        for (int i = 0; i < 6; ++i) {
            Submit(1 + up_to(20), {.key = std::to_string(up_to(2)),
                                   .tokens = 1 + up_to(100),
                                   .say = 1 + up_to(100),
                                   .group = up_to(1) * (1000 + i)});
        }
        ASSERT_NO_FATAL_FAILURE(Steps(up_to(40)));
        if (scheduler_->idle()) continue;
        const Job& modest = Submit({.key = "modest", .tokens = 1 + up_to(20), .say = 1 + up_to(3)});
        EXPECT_GT(StepsUntilEnd(modest, 400), 0);
        while (!scheduler_->idle() && steps_ < 1'000'000) ASSERT_NO_FATAL_FAILURE(Step());
        for (const auto& job : jobs_) EXPECT_EQ(job->said, job->say);
        EXPECT_EQ(scheduler_->stats().free_pages + scheduler_->stats().idle_pages, options_.pages);
    }
}

}  // namespace
}  // namespace weft::engine
