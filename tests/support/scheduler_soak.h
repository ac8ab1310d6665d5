// The scheduler over a simulated KV cache. Each slot of a page holds a hash of the text up to its
// token, so using the wrong page is detected at once. Slots of recurrent state hold such hashes,
// too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/batch/scheduler.h"

namespace weft::engine::soak {

inline constexpr int64_t kSchedulerPage = 4;

inline uint64_t MixedText(uint64_t text, int32_t token) {
    return (text ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15 + 1;
}

// Simulates a backend's use of pages in a step.
class SimulatedCache {
  public:
    explicit SimulatedCache(int64_t pages, int64_t state_slots = 0)
        : slots_(static_cast<size_t>(pages * kSchedulerPage)),
          states_(static_cast<size_t>(state_slots)) {}

    void Run(const StepData& step, const std::vector<PlannedRows>& planned) {
        std::set<size_t> written;
        touched_.clear();
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
            // pages are never shared between tenants
            uint64_t text = std::hash<std::string>()(s.tenant);
            if (!states_.empty()) {
                ASSERT_NO_FATAL_FAILURE(RunState(rows, tokens, text));
            }
            for (int64_t at = 0; at < rows.position + rows.row_count; ++at) {
                text = MixedText(text, tokens[static_cast<size_t>(at)]);
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
    // Contents of a page, or of a slot of recurrent state.
    std::vector<uint64_t> Read(const KeyedPage& page) const {
        if (page.is_state) return {states_.at(static_cast<size_t>(page.place))};
        const auto first = slots_.begin() + page.place * kSchedulerPage;
        return {first, first + kSchedulerPage};
    }
    void Write(const KeyedPage& page, const std::vector<uint64_t>& bytes) {
        if (page.is_state) {
            states_.at(static_cast<size_t>(page.place)) = bytes[0];
        } else {
            std::ranges::copy(bytes, slots_.begin() + page.place * kSchedulerPage);
        }
    }
    void Lose() {
        std::ranges::fill(slots_, 1);
        std::ranges::fill(states_, 1);
    }
    // Rows that started from another sequence's state.
    int64_t found() const { return found_; }
    int64_t copies() const { return copies_; }

  private:
    // Checks logits of scored rows, after the last token of a text and after each drafted token.
    static void CheckOutputs(const StepData& step, const StepData::Sequence& rows,
                             const PlannedRows& plan) {
        ASSERT_EQ(plan.output >= 0, plan.rows - plan.drafted == plan.sequence->pending());
        for (int32_t i = 0; i < plan.score_rows; ++i) {
            const auto output = static_cast<size_t>(plan.scores + i);
            ASSERT_LT(output, step.output_rows.size());
            ASSERT_EQ(step.output_rows[output], rows.row_begin + plan.score_begin + i);
        }
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

    // Recurrent state of one sequence. Before its first row, the source slot must hold the state of
    // the text so far; the named slots receive new states. Other sequences of the step must not
    // touch them.
    void RunState(const StepData::Sequence& rows, const std::vector<int32_t>& tokens,
                  uint64_t text) {
        for (int64_t at = 0; at < rows.position; ++at) {
            text = MixedText(text, tokens[static_cast<size_t>(at)]);
        }
        ASSERT_EQ(rows.state_from < 0, rows.position == 0);
        if (rows.state_from >= 0) {
            ASSERT_EQ(states_.at(static_cast<size_t>(rows.state_from)), text);
        }
        if (rows.state_from >= 0 && rows.state_from != rows.state_to) {
            ASSERT_FALSE(touched_.contains(rows.state_from) && touched_[rows.state_from]);
            touched_[rows.state_from] = false;
            ++found_;
        }
        const auto store = [&](int32_t slot) {
            ASSERT_FALSE(touched_.contains(slot)) << "two sequences have slot " << slot;
            touched_[slot] = true;
            states_.at(static_cast<size_t>(slot)) = text;
        };
        size_t next = 0;
        for (int32_t row = 0; row < rows.row_count; ++row) {
            text = MixedText(text, tokens[static_cast<size_t>(rows.position + row)]);
            for (; next < rows.state_writes.size() &&
                   rows.state_writes[next].row == rows.row_begin + row;
                 ++next) {
                ASSERT_NO_FATAL_FAILURE(store(rows.state_writes[next].slot));
            }
        }
        ASSERT_EQ(next, rows.state_writes.size());
        ASSERT_NO_FATAL_FAILURE(store(rows.state_to));
    }

    int64_t copies_ = 0, found_ = 0;
    std::vector<uint64_t> slots_, states_;
    std::map<int32_t, bool> touched_;  // slots of the step; true: written
};

struct SoakJob {
    Sequence sequence;
    int64_t say = 0;
    int64_t prompt = 0, scored = 0;  // tokens; the prompt's scores that are known
    bool over = false;
};

// Pages kept outside of the simulated KV cache.
class SimulatedStore final : public KeptPages {
  public:
    int64_t Leading(std::span<const PageKey> keys) const override {
        const auto has = [&](const PageKey& key) { return pages_.contains({key, false}); };
        return std::ranges::find_if_not(keys, has) - keys.begin();
    }
    bool HasState(const PageKey& key) const override { return pages_.contains({key, true}); }
    std::map<std::pair<PageKey, bool>, std::vector<uint64_t>> pages_;
};

struct SoakOptions {
    bool prefix_cache = true;
    int64_t pages = 12;
    int64_t drafts = 0;        // most drafted tokens of a sequence
    uint32_t hits = 0;         // accepted drafted tokens of three
    size_t steps_at_once = 1;  // steps in flight
    int64_t state_slots = 0, kept_states = 0;
    bool keeps = false;   // pages outside of the KV cache
    bool scores = false;  // some prompts are scored
    bool odd = false;     // keys with limits and weights, requests of several sequences, texts that
                          // are not cached
};

// Requests with shared prefixes arrive, are cancelled and end. Pages are scarce. Drafted tokens are
// accepted or rejected.
class Soak {
  public:
    Soak(uint32_t seed, const SoakOptions& options)
        : random_(seed),
          soak_(options),
          options_{4,
                   12,
                   options.pages,
                   kSchedulerPage,
                   options.prefix_cache,
                   options.drafts * 2,
                   options.state_slots,
                   options.kept_states},
          scheduler_(options_),
          cache_(options.pages, options.state_slots) {
        const auto steps = static_cast<int64_t>(options.steps_at_once);
        scheduler_.ShareOver(steps, steps);
        KeepPages();
    }

    void Run() {
        for (int turn = 0; turn < 20000 && ended_ < kJobs; ++turn) {
            if (made_ < kJobs && UpTo(2) == 0) Make();
            if (UpTo(60) == 0) Lose();
            ASSERT_NO_FATAL_FAILURE(Turn());
            End();
        }
        EXPECT_EQ(ended_, kJobs) << "somebody waits for ever";
        for (const auto& [id, job] : jobs_) scheduler_.Remove(&job->sequence);
        const ScheduleStats stats = scheduler_.stats();
        EXPECT_EQ(stats.free_pages + stats.idle_pages, soak_.pages) << "pages were lost";
        EXPECT_TRUE(soak_.prefix_cache || stats.cache_hit == 0);
        EXPECT_EQ(stats.free_slots + stats.idle_slots, soak_.state_slots) << "slots were lost";
        if (soak_.scores || soak_.odd) return;
        const bool finds = soak_.prefix_cache && soak_.pages >= 20 && soak_.state_slots == 0;
        EXPECT_TRUE(!finds || stats.cache_hit > 0);
        EXPECT_EQ(cache_.copies() > 0, soak_.prefix_cache && soak_.state_slots == 0);
        // Drafts need state slots, which may be missing.
        if (soak_.state_slots > 0 && soak_.state_slots <= 4 + soak_.kept_states) return;
        EXPECT_EQ(drafted_ > 0, soak_.drafts > 0);
        EXPECT_EQ(kept_ > 0, soak_.drafts > 0 && soak_.hits > 0);
        const bool all = kept_ == drafted_;
        EXPECT_EQ(all, soak_.drafts == 0 || soak_.hits == 3);
    }

    int64_t hits() const { return scheduler_.stats().cache_hit; }
    int64_t restored() const { return scheduler_.stats().kept_hit; }

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
        job->prompt = length;
        if (soak_.scores && length > 1 && UpTo(1) == 0) job->sequence.score_from = 0;
        if (soak_.odd) {
            const bool first = job->sequence.key == "0";
            job->sequence.limit = first ? 2 : 0;
            job->sequence.weight = first ? 3 : 1;
            job->sequence.group = made_ / 4;
            job->sequence.cached = UpTo(4) > 0;
        }
        scheduler_.Add(&job->sequence);
        jobs_.emplace(made_, std::move(job));
    }

    void KeepPages() {
        if (soak_.keeps) scheduler_.KeepPages(PageKeys("a job", "", kSchedulerPage));
    }

    // A rank is lost.
    void Lose() {
        scheduler_.Forget(scheduler_.stats().pages);
        KeepPages();
        cache_.Lose();
        flights_.clear();
    }

    // Saves what is new, and restores; some ranks may lack pages that seemed to be kept. Returns
    // false if a rank was lost meanwhile.
    bool Keep() {
        for (const KeyedPage& page : scheduler_.TakeSaves()) {
            const auto [at, is_new] =
                store_.pages_.try_emplace({page.key, page.is_state}, cache_.Read(page));
            EXPECT_TRUE(is_new || at->second == cache_.Read(page)) << "a key of two texts";
        }
        RestorePlan plan;
        for (int i = 0; i < 3 && scheduler_.PlanRestore(store_, 1 + UpTo(3), plan); ++i) {
            EXPECT_FALSE(plan.pages.empty());
            if (UpTo(20) == 0) return false;
            const auto most = static_cast<uint32_t>(plan.pages.size());
            const uint32_t count = UpTo(3) == 0 ? UpTo(most) : most;
            for (uint32_t at = 0; at < most; ++at) {
                const KeyedPage& page = plan.pages[at];
                const bool good = at < count;
                std::vector<uint64_t> bytes(kSchedulerPage, 1);
                if (good) bytes = store_.pages_.at({page.key, page.is_state});
                cache_.Write(page, bytes);
            }
            scheduler_.EndRestore(plan, count);
        }
        if (UpTo(40) == 0 && !store_.pages_.empty()) store_.pages_.erase(store_.pages_.begin());
        return true;
    }

    // Starts a step, or completes one in flight.
    void Turn() {
        Guess();
        if (soak_.keeps && !Keep()) return Lose();
        ASSERT_FALSE(testing::Test::HasFailure());
        StepData step;
        Planned planned;
        const bool work = scheduler_.Plan(step, planned);
        if (work) {
            ASSERT_FALSE(step.tokens.empty());
            ASSERT_LE(step.output_rows.size(), options_.max_seqs + options_.draft_rows);
            ASSERT_LE(static_cast<int64_t>(step.tokens.size()), options_.step_tokens);
            ASSERT_LE(planned.size(), static_cast<size_t>(options_.max_seqs));
            // A failed step is planned again and writes some pages twice.
            const bool fails = soak_.steps_at_once == 1 && UpTo(50) == 0;
            if (fails && soak_.state_slots > 0) return;
            ASSERT_NO_FATAL_FAILURE(cache_.Run(step, planned));
            if (fails) return;
            scheduler_.CommitInFlight(planned);
            flights_.push_back(Told(planned));
        } else if (flights_.empty()) {
            ASSERT_TRUE(scheduler_.idle() || scheduler_.seeks());
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

    // Results of a step, by number; cancelled sequences leave in the meantime. The scores of
    // `scores` tokens of the prompt, from token `first` on.
    struct Tell {
        int64_t id;
        int32_t drafted, scores;
        int64_t first;
        bool says;
    };
    static std::vector<Tell> Told(const Planned& planned) {
        std::vector<Tell> tell;
        for (const PlannedRows& plan : planned) {
            const int64_t begin = plan.sequence->computed - (plan.rows - plan.drafted);
            tell.push_back({plan.sequence->id, plan.drafted, plan.score_rows,
                            begin + plan.score_begin + 1, plan.output >= 0});
        }
        return tell;
    }

    void Say(const std::vector<Tell>& told) {
        for (const auto& [id, drafted, scores, first, says] : told) {
            const auto at = jobs_.find(id);
            if (at == jobs_.end()) continue;
            SoakJob& job = *at->second;
            Sequence& s = job.sequence;
            const int64_t end = std::min(first + scores, job.prompt);
            if (first <= job.scored + 1 && job.scored + 1 < end) {
                job.scored = end - 1;
                s.score_from = end < job.prompt ? job.scored : Sequence::kNotScored;
            }
            if (!says) continue;
            ASSERT_FALSE(s.scored()) << "a token before the prompt's scores";
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
    SimulatedCache cache_;
    SimulatedStore store_;
    std::map<int64_t, std::unique_ptr<SoakJob>> jobs_;
    std::deque<std::vector<Tell>> flights_;
    std::vector<Sequence*> decodes_;
    int64_t made_ = 0, ended_ = 0, drafted_ = 0, kept_ = 0;
};

}  // namespace weft::engine::soak
