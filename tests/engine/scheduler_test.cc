// The scheduler over a simulated KV cache: each slot of a page holds a hash of the text up to its
// token, so that a page that serves the wrong text is seen at once.
#include "engine/batch/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace weft::engine {
namespace {

constexpr int64_t kPage = 4;

uint64_t Mix(uint64_t text, int32_t token) {
    return (text ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15 + 1;
}

// What a backend would do with a step.
class Cache {
  public:
    explicit Cache(int64_t pages) : slots_(static_cast<size_t>(pages * kPage)) {}

    void Run(const StepData& step, const std::vector<PlannedRows>& planned) {
        std::set<size_t> written;
        for (const auto& [from, to] : step.copies) {
            std::copy_n(slots_.begin() + from * kPage, kPage, slots_.begin() + to * kPage);
            ++copies_;
        }
        for (size_t i = 0; i < planned.size(); ++i) {
            const Sequence& s = *planned[i].sequence;
            const StepData::Sequence& rows = step.sequences[i];
            ASSERT_EQ(rows.row_count, planned[i].rows);
            ASSERT_EQ(rows.position, s.computed);
            uint64_t text = 0;
            for (int64_t at = 0; at < rows.position + rows.row_count; ++at) {
                text = Mix(text, s.tokens[static_cast<size_t>(at)]);
                const auto page = static_cast<size_t>(at / kPage);
                ASSERT_LT(page, rows.pages.size());
                const auto slot = static_cast<size_t>(rows.pages[page] * kPage + at % kPage);
                if (at < rows.position) {
                    ASSERT_EQ(slots_[slot], text) << "position " << at << " has another text";
                    continue;
                }
                const auto row = static_cast<size_t>(rows.row_begin + at - rows.position);
                ASSERT_EQ(step.tokens[row], s.tokens[static_cast<size_t>(at)]);
                ASSERT_EQ(step.positions[row], at);
                ASSERT_TRUE(written.insert(slot).second) << "two rows in one slot";
                slots_[slot] = text;
            }
        }
    }
    void Lose() { std::ranges::fill(slots_, 1); }
    int64_t copies() const { return copies_; }

  private:
    int64_t copies_ = 0;
    std::vector<uint64_t> slots_;
};

struct Job {
    Sequence sequence;
    int64_t say = 0;
    bool over = false;
};

// Requests that share prefixes come, are cancelled and end; pages are few.
void Soak(uint32_t seed, bool prefix_cache, int64_t pages) {
    std::mt19937 random(seed);
    const auto up_to = [&](uint32_t most) { return random() % (most + 1); };
    ScheduleOptions options{4, 12, pages, kPage, prefix_cache};
    Scheduler scheduler(options);
    Cache cache(pages);
    std::map<int64_t, std::unique_ptr<Job>> jobs;
    StepData step;
    std::vector<PlannedRows> planned;
    int64_t made = 0, ended = 0;
    for (int turn = 0; turn < 20000 && ended < 120; ++turn) {
        if (made < 120 && up_to(2) == 0) {
            auto job = std::make_unique<Job>();
            const auto length = 1 + up_to(static_cast<uint32_t>(pages * kPage / 2));
            const auto kind = static_cast<int32_t>(up_to(2));
            for (uint32_t i = 0; i < length; ++i) {
                const bool shared = i < 10;
                job->sequence.tokens.push_back(shared ? kind : static_cast<int32_t>(up_to(1)));
            }
            job->say = 1 + up_to(static_cast<uint32_t>(pages * kPage / 2 - 1));
            job->sequence.id = ++made;
            job->sequence.priority = static_cast<int>(up_to(1));
            job->sequence.key = std::to_string(up_to(2));
            scheduler.Add(&job->sequence);
            jobs.emplace(made, std::move(job));
        }
        if (up_to(60) == 0) {
            scheduler.Forget();
            cache.Lose();
        }
        if (!scheduler.Plan(step, planned)) {
            ASSERT_TRUE(scheduler.idle());
            continue;
        }
        ASSERT_LE(static_cast<int64_t>(step.tokens.size()), options.step_tokens);
        ASSERT_LE(planned.size(), static_cast<size_t>(options.max_seqs));
        ASSERT_NO_FATAL_FAILURE(cache.Run(step, planned));
        if (up_to(50) == 0) continue;  // the step failed and is planned again
        scheduler.Commit(planned);
        for (const PlannedRows& plan : planned) {
            Job& job = *jobs.at(plan.sequence->id);
            if (plan.output < 0) continue;
            ASSERT_EQ(plan.sequence->pending(), 0);
            plan.sequence->tokens.push_back(static_cast<int32_t>(up_to(1)));
            job.over = --job.say == 0;
        }
        for (auto it = jobs.begin(); it != jobs.end();) {
            if (it->second->over || up_to(300) == 0) {
                scheduler.Remove(&it->second->sequence);
                ++ended;
                it = jobs.erase(it);
            } else {
                ++it;
            }
        }
    }
    EXPECT_EQ(ended, 120) << "somebody waits for ever";
    for (const auto& [id, job] : jobs) scheduler.Remove(&job->sequence);
    const ScheduleStats stats = scheduler.stats();
    EXPECT_EQ(stats.free_pages + stats.idle_pages, pages) << "pages were lost";
    EXPECT_TRUE(prefix_cache || stats.cache_hit == 0);
    EXPECT_TRUE(!prefix_cache || pages < 20 || stats.cache_hit > 0);
    EXPECT_EQ(cache.copies() > 0, prefix_cache);
}

TEST(Scheduler, NoSequenceEverSeesTheTextOfAnother) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        ASSERT_NO_FATAL_FAILURE(Soak(seed, true, 12)) << seed;
        ASSERT_NO_FATAL_FAILURE(Soak(seed, true, 40)) << seed;
        ASSERT_NO_FATAL_FAILURE(Soak(seed, false, 12)) << seed;
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
    Scheduler scheduler({4, 8, 100, kPage, true});
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
    Scheduler scheduler({4, 64, 100, kPage, true});
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
    Scheduler scheduler({4, 64, 100, kPage, true});
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
    Scheduler scheduler({4, 64, 3, kPage, true});
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
    Scheduler scheduler({4, 16, 5, kPage, false});
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

TEST(Scheduler, KeysShareFairlyAndPriorityGoesFirst) {
    Scheduler scheduler({1, 4, 100, kPage, false});
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
