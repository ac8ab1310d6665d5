// Scheduler: which rows of which sequences the next step takes, and on which KV pages.
//
// Continuous batching with chunked prefill: every step first takes the last token of each sequence
// that says tokens, then, with the rows that are left of its budget, parts of prompts. So a long
// prompt holds up others by one step's budget at a time, and never longer.
// What the prefix cache knows of a prompt is not computed: whole pages are shared, and of a page
// that agrees with the prompt for a while the sequence gets a copy, which the step makes first.
// Pages are given as a sequence grows. When none is left, the prefix cache gives up what nobody
// uses; then the sequence of the least priority that came last is taken back: it waits, and is
// computed again from its tokens (of which the cache still has what was not needed since). On a CPU
// "swapping to host memory" would be a copy from memory to memory, and no cheaper.
// Drafts: who says tokens may have guesses of what comes next (`Sequence::draft`). They take rows
// that are left, never at the cost of anybody's token or page, and half of what prompts could have.
// What a step computes of them counts only when its caller says that a guess came true (Keep):
// until then no row of one is known, shared or cached, and the next step writes over it.
// Who waits is let in by priority, then by fair share (the key that was served least, by its
// weight), then by time.
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

struct ScheduleOptions {
    int64_t max_seqs = 32;      // that run at once
    int64_t step_tokens = 512;  // most rows of a step; at least max_seqs
    int64_t pages = 0;          // of the KV cache
    int64_t page_tokens = 64;
    bool prefix_cache = true;
    int64_t draft_rows = 0;  // most guesses of a step
};

// A request as the scheduler sees it. Owned by the caller, who appends to `tokens` between Commit
// and the next Plan.
struct Sequence {
    int64_t id = 0;
    std::vector<int32_t> tokens;  // the prompt and what was said
    std::string key{};            // who shares fairly with others
    int priority = 0;             // more is sooner
    double weight = 1;            // of the key
    bool cached = true;           // may take pages from the prefix cache, and leaves its own there
    std::vector<int32_t> draft{};  // guesses of what follows `tokens`
    // When it is computed again, its last token has a step of its own, where its draft is checked.
    bool last_apart = false;
    int32_t adapter = 0;          // of the job's, from 1; 0: none
    std::string tenant{};         // whose texts in the prefix cache it may meet

    // The scheduler's own.
    int64_t computed = 0;    // tokens with KV rows; those that `copy` brings are among them
    int64_t from_cache = 0;  // of them, at the first start, found in the prefix cache
    int64_t preempted = 0;   // times
    bool started = false;
    bool running = false;    // let in, and not taken back since
    int64_t plan = 0;        // the last one that it has rows in
    bool in_flight = false;  // a token of it is on its way: it is left alone
    std::vector<int32_t> pages{};
    // The page of others, held until then, with a copy of which this one's last page begins.
    PrefixCache::Part copy{};
    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - computed; }
    PrefixSpace space() const { return {tenant, adapter}; }
};

// What a step has of a sequence.
struct PlannedRows {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    int32_t output = -1;  // which row of the logits is after its last token; -1: none yet
    int32_t drafted = 0;  // of the rows, the last ones: guesses. Their logits follow `output`
};

struct ScheduleStats {
    int64_t running = 0, waiting = 0;
    int64_t pages = 0, free_pages = 0, idle_pages = 0;
    int64_t cache_asked = 0, cache_hit = 0;  // prompt tokens, since the beginning
    int64_t preemptions = 0;
};

class Scheduler {
  public:
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
    bool Grow(Sequence& sequence, int64_t tokens);
    bool Reserve(Sequence& sequence, int64_t tokens);
    Sequence* Victim(const Sequence& wanting) const;
    void Preempt(Sequence* sequence);
    void ReleasePages(Sequence& sequence);
    void Append(Sequence& sequence, int64_t rows, int64_t drafted, StepData& step,
                std::vector<PlannedRows>& planned);
    int64_t PromptRows(const Sequence& sequence, const StepData& step) const;
    void Advance(Sequence& sequence, int64_t rows);
    void PlanDecodes(StepData& step, std::vector<PlannedRows>& planned);
    void PlanPrefills(StepData& step, std::vector<PlannedRows>& planned);
    void Admit(StepData& step, std::vector<PlannedRows>& planned);
    size_t BestWaiting() const;
    bool Sooner(const Sequence& a, const Sequence& b) const;
    int64_t Left(const StepData& step) const;
    int64_t PagesFor(int64_t tokens) const;
    void FindPrefix(Sequence& sequence);
    void DropCopy(Sequence& sequence);
    bool HasRoom(const Sequence& sequence) const;
    void KeepTail(const Sequence& sequence);
    void CountFound(Sequence& sequence, int64_t found);

    ScheduleOptions options_;
    PagePool pool_;
    PrefixCache cache_;
    std::vector<Sequence*> running_;  // in the order in which they were let in
    std::vector<Sequence*> waiting_;
    std::vector<int32_t> found_;      // pages, while FindPrefix looks
    std::vector<Sequence*> decodes_;  // while decodes are planned
    std::vector<int32_t> rows_;       // of a sequence and its draft, while they are appended
    std::unordered_map<std::string, double> served_;  // tokens by weight, of keys that are here
    int64_t steps_at_once_ = 1, stages_ = 1;
    int64_t plan_ = 0;  // the one that is being made, or was made last
    ScheduleStats stats_;
};

}  // namespace weft::engine
