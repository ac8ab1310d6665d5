// Scheduler: which rows of which sequences the next step takes, and on which KV pages.
//
// Continuous batching with chunked prefill: every step first takes the last token of each sequence
// that says tokens, then, with the rows that are left of its budget, parts of prompts. So a long
// prompt holds up others by one step's budget at a time, and never longer.
// What the prefix cache knows of a prompt is not computed: whole pages are shared, and of a page
// that agrees with the prompt for a while the sequence gets a copy, which the step makes first.
// A sequence gets pages as it grows. When no page is free, the prefix cache gives up idle pages;
// then a sequence is preempted: it waits, and is computed again from its tokens (the cache still
// has the pages that nobody else needed). On a CPU "swapping to host memory" would be a copy from
// memory to memory, and no cheaper.
// Keys share slots, pages and rows of prompts fairly, by weight; within a key its requests do
// (scheduler_turns.cc). A waiting sequence preempts one of lower priority, else one of the key or
// request that holds the most of what it lacks. Where every key has one sequence, keys take turns.
// Drafts: who says tokens may have guesses of what comes next (`Sequence::draft`). They take rows
// that are left, never at the cost of anybody's token or page, and half of what prompts could have.
// What a step computes of them counts only when its caller says that a guess came true (Keep):
// until then no row of one is known, shared or cached, and the next step writes over it.
// Recurrent state (of models with such layers) is in slots. A sequence that runs has one of its
// own, which follows its tokens from step to step. The prefix cache keeps some more: the state at
// the last page border of a prompt, at the last one of an answer so far, and where a prompt parts
// from texts that were read before. A guess in a step needs a slot, too, so that the state can go
// back to the last guess that came true. A preempted sequence gives its slot away and is computed
// again.
// A scored prompt needs a row of logits for each of its rows, and a step has few of these. Every
// other prompt that may end in the step keeps one. Keys share the rest equally, and within a key
// the first prompts have it, so that the next ones find in the prefix cache what they begin with.
// A waiting sequence is admitted by priority, then the key with the fewest running sequences by
// weight, then the key that was served least by weight, then the request with the fewest running
// sequences, then by time.
// Pure: no clock, no I/O, the same calls give the same steps. Thread: one caller.
// Sources: Orca (Yu et al. 2022), iteration-level scheduling; Sarathi-Serve (Agrawal et al. 2024),
// chunked prefill with decodes; vLLM (Kwon et al. 2023), paged KV and preemption by recomputing;
// start-time fair queueing (Goyal et al. 1996).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/batch/pages.h"
#include "engine/batch/prefix_cache.h"
#include "engine/step_message.h"

namespace weft::engine {

// Tokens of a prompt of `tokens` in a step of at most `most` rows, where there is nothing else.
// With pipeline stages a prompt goes in several steps, so that the first stage works on the next
// part while the later ones have the last: S stages and C parts take (C + S - 1) / (C * S) of the
// time of one stage after another.
int64_t PromptChunk(int64_t tokens, int64_t most, int64_t stages);

struct Sequence;

struct ScheduleOptions {
    int64_t max_seqs = 32;      // that run at once
    int64_t step_tokens = 512;  // most rows of a step; at least max_seqs
    int64_t pages = 0;          // of the KV cache
    int64_t page_tokens = 64;
    bool prefix_cache = true;
    int64_t draft_rows = 0;  // most guesses of a step
    // Slots of recurrent state (0: the model has none), at least max_seqs; and how many of them the
    // prefix cache may keep.
    int64_t state_slots = 0, kept_states = 0;
};

// The sequences of one request.
struct RequestUse {
    int64_t sequences = 0, running = 0;
    int64_t pages = 0;            // while victims are chosen
    int64_t plan = 0, prompts = 0;  // the last plan that counted its prompts, and how many
};

// The sequences of one key.
struct KeyUse {
    int64_t sequences = 0, running = 0;
    double weight = 1;
    double served = 0;  // tokens by weight
    int64_t since = 0;  // id of its first sequence
    std::unordered_map<int64_t, RequestUse> requests{};
    int64_t pages = 0;    // while victims are chosen
    int64_t blocked = 0;  // the last plan in which none of its waiting sequences could be admitted
    // Within a plan: its next waiting sequence; its demand for rows of prompts, the highest
    // priority of these prompts, and the rows that it may use.
    Sequence* next = nullptr;
    int64_t demand_plan = 0, demand = 0, rows = 0;
    int priority = 0;
    // Within a plan: the rows of logits that its scored prompts may have, and those it has claimed.
    int64_t score_plan = 0, score_rows = 0, score_demand = 0;
};

// A request as the scheduler sees it. Owned by the caller, who appends to `tokens` between Commit
// and the next Plan.
struct Sequence {
    int64_t id = 0;
    std::vector<int32_t> tokens;  // the prompt and what was said
    std::string key{};            // keys share fairly
    int64_t group = 0;            // the request, within the key; 0: a request of its own
    int64_t limit = 0;            // most sequences of the key that run at once; 0: no limit
    int priority = 0;             // more is sooner
    double weight = 1;            // of the key
    // Every row from this one on has logits, not only the last; kNotScored: only the last.
    int64_t score_from = kNotScored;
    bool cached = true;           // may take pages from the prefix cache, and leaves its own there
    std::vector<int32_t> draft{};  // guesses of what follows `tokens`
    // When it is computed again, its last token has a step of its own, where its draft is checked.
    bool last_apart = false;
    int32_t adapter = 0;          // of the job's, from 1; 0: none
    std::string tenant{};         // whose texts in the prefix cache it may meet

    // The scheduler's own.
    KeyUse* of_key = nullptr;
    RequestUse* of_request = nullptr;
    int64_t turn = 0;   // progress since it was admitted: see kTurn
    int64_t known = 0;  // tokens that were ever computed
    int64_t promised = 0;  // the last plan in which another was preempted for it
    int64_t wants = 0;  // pages, free or idle, that it lacked when it was last tried; 0: not tried
    int64_t computed = 0;    // tokens with KV rows; those that `copy` brings are among them
    int64_t from_cache = 0;  // of them, at the first start, found in the prefix cache
    int64_t preempted = 0;   // times
    bool started = false;
    bool running = false;    // let in, and not taken back since
    int64_t plan = 0;        // the last one that it has rows in
    int64_t rank = 0;        // among the prompts of its request, while they are planned
    bool in_flight = false;  // a token of it is on its way: it is left alone
    std::vector<int32_t> pages{};
    // The page of others, held until then, with a copy of which this one's last page begins.
    PrefixCache::Part copy{};
    // Slots of recurrent state: its own, that of the prefix cache which the next step begins with
    // (held until then), and those that rows of the planned step leave: at a border of pages for
    // the cache, and after each row but the last of a step with guesses.
    struct Border {
        int64_t tokens = 0;
        int32_t slot = -1;
    };
    int32_t slot = -1, state_from = -1;
    std::vector<Border> borders{};
    std::vector<int32_t> draft_slots{};
    int64_t drafted_from = 0;  // `computed` where the step's guesses begin
    int64_t parts_at = 0;      // tokens that other texts have, too, in whole pages
    int64_t last_border = 0;   // of the answer: the tokens behind which the cache has its state
    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - computed; }
    PrefixSpace space() const { return {tenant, adapter}; }
    static constexpr int64_t kNotScored = INT64_MAX;
    bool scored() const { return score_from != kNotScored; }
};

// What a step has of a sequence.
struct PlannedRows {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    int32_t output = -1;  // which row of the logits is after its last token; -1: none yet
    int32_t drafted = 0;  // of the rows, the last ones: guesses. Their logits follow `output`
    // Of a scored sequence: how many of its rows, from `score_begin` on, have logits, and which row
    // of the logits is after the first of them. (The last row of a prompt has `output` instead.)
    int32_t scores = -1, score_begin = 0, score_rows = 0;
};

struct ScheduleStats {
    int64_t running = 0, waiting = 0;
    int64_t pages = 0, free_pages = 0, idle_pages = 0;
    int64_t free_slots = 0, idle_slots = 0;  // of recurrent state
    int64_t cache_asked = 0, cache_hit = 0;  // prompt tokens, since the beginning
    int64_t preemptions = 0;
};

class Scheduler {
  public:
    // A sequence that is the only one of its key has the slot for this long before another key's
    // may preempt it: tokens of a prompt that were computed for the first time, and kTokenTurn for
    // each generated token, less the tokens that were computed again. So at least half of the work
    // is progress.
    static constexpr int64_t kTurn = 512, kTokenTurn = 8;

    explicit Scheduler(const ScheduleOptions& options);

    // The sequence waits from now on. It has at least one token, and fits the pages when whole.
    void Add(Sequence* sequence);
    // It is over, or nobody wants it: its pages are free for others at once.
    void Remove(Sequence* sequence);
    // Who has a token in the next plan, as long as there are pages: for them drafts are of use.
    void Decodes(std::vector<Sequence*>& sequences) const;
    // How many guesses there are rows for in the next plan, beside a row for each of so many.
    int64_t RowsForDrafts(int64_t decodes) const;
    // How many guesses of a sequence, of at most `most`, there are pages for that nobody else needs
    // in the next plan, `others` sequences with a token each. It has them from now on.
    int64_t PagesForDraft(Sequence& sequence, int64_t most, int64_t others);
    // The rows of the next step, into `step` (its number grows) and `planned`; false: nobody wants
    // anything. Sequences whose last token is in it get a row of logits, in order.
    bool Plan(StepData& step, std::vector<PlannedRows>& planned);
    // The planned step has run, or is certain to before the next one: its rows have KV. Those of
    // guesses are left out.
    void Commit(std::span<const PlannedRows> planned);
    // The same for a step whose logits come later, while others run: sequences with rows of logits
    // in it have no rows in those. The caller clears in_flight when it appends the token.
    void CommitInFlight(std::span<const PlannedRows> planned);
    // Of a sequence whose last step had guesses: the next one of them is what was said (and stands
    // in `tokens`), so that its row counts.
    void Keep(Sequence& sequence);
    // All that came true were kept: what the others needed is given back, the draft is gone.
    void EndDraft(Sequence& sequence);
    // Several steps are in flight at once: those that say tokens are shared out over so many. A
    // step goes through so many stages.
    void ShareOver(int64_t steps, int64_t stages) {
        steps_at_once_ = steps;
        stages_ = stages;
    }
    // The KV cache is lost: everyone begins again from the tokens, in the same order.
    void Forget();

    bool idle() const { return running_.empty() && waiting_.empty(); }
    ScheduleStats stats() const;

  private:
    void ShareScores(const StepData& step);
    int64_t RowsWithLogits(const Sequence& sequence, int64_t rows, int64_t left) const;
    static int64_t ScoresOf(const Sequence& sequence, int64_t rows);
    bool Grow(Sequence& sequence, int64_t tokens);
    bool Reserve(Sequence& sequence, int64_t tokens);
    void Count(const Sequence& sequence, int64_t running);
    void SumPages();
    Sequence* Victim(const Sequence& growing);
    int64_t Owed(const Sequence& sequence) const;
    int64_t Room() const;
    bool GivesPages(const Sequence& other, const Sequence& growing, bool after) const;
    bool GivesWay(const Sequence& running, const Sequence& waiting, bool slot) const;
    Sequence* VictimFor(const Sequence& waiting, bool slot, bool own) const;
    bool PreemptFor(const Sequence& waiting, bool slot, bool own);
    void FindNextOfKeys();
    void MakeWay();
    void Demand(const Sequence& sequence, int64_t left);
    void ShareRows(int64_t left);
    bool AtLimit(const Sequence& sequence) const;
    bool MayPass(const Sequence& sequence, const Sequence& blocked);
    bool AdmitOne(Sequence& sequence, StepData& step, std::vector<PlannedRows>& planned);
    void Preempt(Sequence* sequence);
    void ReleasePages(Sequence& sequence);
    void Append(Sequence& sequence, int64_t rows, int64_t drafted, StepData& step,
                std::vector<PlannedRows>& planned);
    int64_t PromptRows(const Sequence& sequence, const StepData& step) const;
    int64_t TakeRows(const Sequence& sequence, int64_t rows);
    void Advance(Sequence& sequence, int64_t rows);
    void PlanDecodes(StepData& step, std::vector<PlannedRows>& planned);
    void PlanPrefills(StepData& step, std::vector<PlannedRows>& planned);
    void Admit(StepData& step, std::vector<PlannedRows>& planned);
    void PlanFirst(StepData& step, std::vector<PlannedRows>& planned);
    Sequence* NextWaiting() const;
    bool Sooner(const Sequence& a, const Sequence& b) const;
    int64_t Left(const StepData& step) const;
    int64_t PagesFor(int64_t tokens) const;
    void FindPrefix(Sequence& sequence);
    void DropCopy(Sequence& sequence);
    void KeepTail(const Sequence& sequence);
    void CountFound(Sequence& sequence, int64_t found);
    // Recurrent state (scheduler_state.cc).
    bool has_state() const { return options_.state_slots > 0; }
    bool TakeOwnSlot(Sequence& sequence);
    int32_t TakeBorderSlot();
    void ReleaseSlots(Sequence& sequence);
    void FindState(Sequence& sequence, int64_t most);
    int64_t SlotsForDraft(Sequence& sequence, int64_t most);
    void PlanState(Sequence& sequence, int64_t rows, int64_t drafted, int32_t first_row,
                   StepData::Sequence& of_step);
    void PlanBorders(Sequence& sequence, int64_t rows, int32_t first_row,
                     StepData::Sequence& of_step);
    void CommitState(Sequence& sequence);
    void KeepDraftState(Sequence& sequence);

    ScheduleOptions options_;
    PagePool pool_, slots_;
    PrefixCache cache_;
    std::vector<Sequence*> running_;  // in the order in which they were let in
    std::vector<Sequence*> waiting_;
    std::vector<int32_t> found_;      // pages, while FindPrefix looks
    std::vector<Sequence*> decodes_;  // while decodes are planned
    std::vector<int32_t> rows_;       // of a sequence and its draft, while they are appended
    std::unordered_map<std::string, KeyUse> keys_;  // that have sequences here
    std::vector<KeyUse*> turns_;       // see FindNextOfKeys
    std::vector<KeyUse*> sharing_;     // keys with prompts, while rows are shared
    std::vector<Sequence*> prompts_;   // while their rows are planned
    std::vector<Sequence*> victims_;   // while they are chosen
    int64_t spare_rows_ = 0;           // of prompts, that no key has a claim to
    int64_t score_rows_ = 0;           // rows of logits that are left for scored prompts
    int64_t steps_at_once_ = 1, stages_ = 1;
    int64_t plan_ = 0;  // the one that is being made, or was made last
    ScheduleStats stats_;
};

}  // namespace weft::engine
