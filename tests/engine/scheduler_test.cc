// The scheduler over a simulated KV cache: each slot of a page holds a hash of the text up to its
// token, so that a page that serves the wrong text is seen at once.
#include "engine/batch/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace weft::engine {
namespace {

constexpr int64_t kSchedulerPage = 4;

uint64_t Mix(uint64_t text, int32_t token) {
    return (text ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15 + 1;
}

// What a backend would do with a step.
class Cache {
  public:
    explicit Cache(int64_t pages) : slots_(static_cast<size_t>(pages * kSchedulerPage)) {}

    void Run(const StepData& step, const std::vector<PlannedRows>& planned) {
        std::set<size_t> written;
        for (const auto& [from, to] : step.copies) {
            std::copy_n(slots_.begin() + from * kSchedulerPage, kSchedulerPage,
                        slots_.begin() + to * kSchedulerPage);
            ++copies_;
        }
        for (size_t i = 0; i < planned.size(); ++i) {
            const Sequence& s = *planned[i].sequence;
            const StepData::Sequence& rows = step.sequences[i];
            ASSERT_EQ(rows.row_count, planned[i].rows);
            ASSERT_EQ(rows.position, s.computed);
            ASSERT_NO_FATAL_FAILURE(CheckOutputs(step, rows, planned[i]));
            std::vector<int32_t> tokens = s.tokens;
            tokens.insert(tokens.end(), s.draft.begin(), s.draft.end());
            uint64_t text = std::hash<std::string>()(s.tenant);  // never another tenant's page
            for (int64_t at = 0; at < rows.position + rows.row_count; ++at) {
                text = Mix(text, tokens[static_cast<size_t>(at)]);
                const auto page = static_cast<size_t>(at / kSchedulerPage);
                ASSERT_LT(page, rows.pages.size());
                const auto slot =
                    static_cast<size_t>(rows.pages[page] * kSchedulerPage + at % kSchedulerPage);
                if (at < rows.position) {
                    ASSERT_EQ(slots_[slot], text) << "position " << at << " has another text";
                    continue;
                }
                const auto row = static_cast<size_t>(rows.row_begin + at - rows.position);
                ASSERT_EQ(step.tokens[row], tokens[static_cast<size_t>(at)]);
                ASSERT_EQ(step.positions[row], at);
                ASSERT_TRUE(written.insert(slot).second) << "two rows in one slot";
                slots_[slot] = text;
            }
        }
    }
    void Lose() { std::ranges::fill(slots_, 1); }
    int64_t copies() const { return copies_; }

  private:
    // Logits after the last token of a text, and after each guess.
    static void CheckOutputs(const StepData& step, const StepData::Sequence& rows,
                             const PlannedRows& plan) {
        ASSERT_EQ(plan.output >= 0, plan.rows - plan.drafted == plan.sequence->pending());
        if (plan.output < 0) {
            ASSERT_EQ(plan.drafted, 0);
            return;
        }
        for (int32_t i = 0; i <= plan.drafted; ++i) {
            const auto output = static_cast<size_t>(plan.output + i);
            ASSERT_LT(output, step.output_rows.size());
            ASSERT_EQ(step.output_rows[output],
                      rows.row_begin + rows.row_count - 1 - plan.drafted + i);
        }
    }

    int64_t copies_ = 0;
    std::vector<uint64_t> slots_;
};

struct SoakJob {
    Sequence sequence;
    int64_t say = 0;
    bool over = false;
};

struct SoakOptions {
    bool prefix_cache = true;
    int64_t pages = 12;
    int64_t drafts = 0;        // most guesses of a sequence
    uint32_t hits = 0;         // of three guesses, so many come true
    size_t steps_at_once = 1;  // in flight
};

// Requests that share prefixes come, are cancelled and end; pages are few; guesses come true or
// not.
class Soak {
  public:
    Soak(uint32_t seed, const SoakOptions& options)
        : random_(seed),
          soak_(options),
          options_{4, 12, options.pages, kSchedulerPage, options.prefix_cache, options.drafts * 2},
          scheduler_(options_),
          cache_(options.pages) {
        scheduler_.ShareOver(static_cast<int64_t>(options.steps_at_once), 1);
    }

    void Run() {
        for (int turn = 0; turn < 20000 && ended_ < kJobs; ++turn) {
            if (made_ < kJobs && UpTo(2) == 0) Make();
            if (UpTo(60) == 0) {
                scheduler_.Forget();
                cache_.Lose();
                flights_.clear();
            }
            ASSERT_NO_FATAL_FAILURE(Turn());
            End();
        }
        EXPECT_EQ(ended_, kJobs) << "somebody waits for ever";
        for (const auto& [id, job] : jobs_) scheduler_.Remove(&job->sequence);
        const ScheduleStats stats = scheduler_.stats();
        EXPECT_EQ(stats.free_pages + stats.idle_pages, soak_.pages) << "pages were lost";
        EXPECT_TRUE(soak_.prefix_cache || stats.cache_hit == 0);
        EXPECT_TRUE(!soak_.prefix_cache || soak_.pages < 20 || stats.cache_hit > 0);
        EXPECT_EQ(cache_.copies() > 0, soak_.prefix_cache);
        EXPECT_EQ(drafted_ > 0, soak_.drafts > 0);
        EXPECT_EQ(kept_ > 0, soak_.drafts > 0 && soak_.hits > 0);
        EXPECT_EQ(kept_<drafted_, soak_.drafts> 0 && soak_.hits < 3);
    }

  private:
    static constexpr int64_t kJobs = 120;
    using Planned = std::vector<PlannedRows>;
    uint32_t UpTo(uint32_t most) { return random_() % (most + 1); }
    int32_t Word() { return static_cast<int32_t>(UpTo(1)); }

    void Make() {
        auto job = std::make_unique<SoakJob>();
        const auto half = static_cast<uint32_t>(soak_.pages * kSchedulerPage / 2);
        const auto length = 1 + UpTo(half);
        const auto kind = static_cast<int32_t>(UpTo(2));
        for (uint32_t i = 0; i < length; ++i) {
            job->sequence.tokens.push_back(i < 10 ? kind : Word());
        }
        job->say = 1 + UpTo(half - 1);
        job->sequence.id = ++made_;
        job->sequence.priority = static_cast<int>(UpTo(1));
        job->sequence.key = std::to_string(UpTo(2));
        job->sequence.tenant = made_ % 3 == 0 ? "another" : "";
        scheduler_.Add(&job->sequence);
        jobs_.emplace(made_, std::move(job));
    }

    // A step; or what is in flight comes down.
    void Turn() {
        Guess();
        StepData step;
        Planned planned;
        const bool work = scheduler_.Plan(step, planned);
        if (work) {
            ASSERT_LE(static_cast<int64_t>(step.tokens.size()), options_.step_tokens);
            ASSERT_LE(planned.size(), static_cast<size_t>(options_.max_seqs));
            ASSERT_NO_FATAL_FAILURE(cache_.Run(step, planned));
            // It failed, and is planned again.
            if (soak_.steps_at_once == 1 && UpTo(50) == 0) return;
            scheduler_.CommitInFlight(planned);
            flights_.push_back(Told(planned));
        } else if (flights_.empty()) {
            ASSERT_TRUE(scheduler_.idle());
        }
        if (flights_.size() >= soak_.steps_at_once || (!work && !flights_.empty())) {
            Say(flights_.front());
            flights_.pop_front();
        }
    }

    void Guess() {
        scheduler_.Decodes(decodes_);
        for (Sequence* s : decodes_) {
            const SoakJob& job = *jobs_.at(s->id);
            const auto most = std::min(soak_.drafts, job.say - 1);
            s->draft.resize(UpTo(static_cast<uint32_t>(most)));
            for (int32_t& token : s->draft) token = Word();
        }
    }

    // What is to be said of a step, by number: who is cancelled meanwhile leaves.
    struct Tell {
        int64_t id;
        int32_t drafted;
    };
    static std::vector<Tell> Told(const Planned& planned) {
        std::vector<Tell> tell;
        for (const PlannedRows& plan : planned) {
            if (plan.output >= 0) tell.push_back({plan.sequence->id, plan.drafted});
        }
        return tell;
    }

    void Say(const std::vector<Tell>& told) {
        for (const auto& [id, drafted] : told) {
            const auto at = jobs_.find(id);
            if (at == jobs_.end()) continue;
            SoakJob& job = *at->second;
            Sequence& s = job.sequence;
            s.in_flight = false;
            ASSERT_EQ(s.pending(), 0);
            for (int32_t i = 0; !job.over; ++i) {
                const bool hit = i < drafted && UpTo(2) < soak_.hits;
                s.tokens.push_back(hit ? s.draft[static_cast<size_t>(i)] : Word());
                job.over = --job.say == 0;
                if (!hit) break;
                scheduler_.Keep(s);
                ++kept_;
            }
            drafted_ += drafted;
            scheduler_.EndDraft(s);
            ASSERT_EQ(s.pending(), 1 - (job.over && s.computed == Size(s) ? 1 : 0));
            ASSERT_LE(static_cast<int64_t>(s.pages.size()), s.computed / kSchedulerPage + 1);
        }
    }
    static int64_t Size(const Sequence& s) { return static_cast<int64_t>(s.tokens.size()); }

    void End() {
        for (auto it = jobs_.begin(); it != jobs_.end();) {
            if (it->second->over || UpTo(300) == 0) {
                scheduler_.Remove(&it->second->sequence);
                ++ended_;
                it = jobs_.erase(it);
            } else {
                ++it;
            }
        }
    }

    std::mt19937 random_;
    SoakOptions soak_;
    ScheduleOptions options_;
    Scheduler scheduler_;
    Cache cache_;
    std::map<int64_t, std::unique_ptr<SoakJob>> jobs_;
    std::deque<std::vector<Tell>> flights_;
    std::vector<Sequence*> decodes_;
    int64_t made_ = 0, ended_ = 0, drafted_ = 0, kept_ = 0;
};

TEST(Scheduler, NoSequenceEverSeesTheTextOfAnother) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 12}).Run());
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {true, 40}).Run());
        ASSERT_NO_FATAL_FAILURE(Soak(seed, {false, 12}).Run());
    }
}

TEST(Scheduler, NorThatOfGuessesThatDidNotComeTrue) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
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

// Adds a sequence of `tokens` tokens that are all `first`.
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

TEST(Scheduler, ALongPromptHoldsNobodyUp) {
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
    // Of 20 tokens 19 may come from the cache: four whole pages of four, and three of the fifth.
    EXPECT_EQ(RowsOf(planned, 2), 1);
    EXPECT_EQ(second->from_cache, 19);
    EXPECT_EQ(scheduler.stats().cache_hit, 19);
    ASSERT_EQ(step.copies.size(), 1u);
    EXPECT_EQ(step.copies[0].from, first->pages[4]);
    EXPECT_EQ(step.copies[0].to, second->pages[4]);
    EXPECT_EQ(first->pages[3], second->pages[3]);
    EXPECT_NE(first->pages[4], second->pages[4]);
}

// A prompt's last page is not full; who comes with the same beginning has it all the same, while
// the first still speaks and after it has left.
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

// The page that a copy is made of is not held at the cost of the one who wants it.
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

TEST(Scheduler, WhoCameLastGivesWay) {
    Scheduler scheduler({4, 16, 5, kSchedulerPage, false});
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

// Guesses take what is left of a step, and half of it where a prompt is to be read.
TEST(Scheduler, DraftsHoldNobodyUp) {
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

// A prompt that has all stages to itself goes in parts, so that they work on it at once; beside
// others it does not.
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
    EXPECT_EQ(RowsOf(planned, 1), 512);
}

// The draft of a step that was lost is checked when all before it is computed again.
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
    scheduler.Forget();
    s->last_apart = true;
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(RowsOf(planned, 1), 9);
    EXPECT_TRUE(step.output_rows.empty());
    scheduler.Commit(planned);
    ASSERT_TRUE(scheduler.Plan(step, planned));
    EXPECT_EQ(step.tokens, (std::vector<int32_t>{5, 6, 7, 8}));
    EXPECT_EQ(step.output_rows.size(), 4u);
}

// A guess is no reason to push anybody out, nor to keep a page.
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

}  // namespace
}  // namespace weft::engine
