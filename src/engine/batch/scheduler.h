// Scheduler: chooses how many rows each sequence has in the next step, and the sequences' KV pages.
// A row is one token of one sequence.
//
// Steps: continuous batching with chunked prefill. A step first has the last token of each decoding
// sequence, then parts of prompts up to its row budget. A long prompt thus delays other sequences
// by one step's budget at a time.
// Prefix cache: the scheduler reuses KV rows of the prefix cache instead of computing them.
// Sequences share whole pages; if only the first rows of a page match, the step first copies the
// page.
// Preemption: a sequence gets pages as it grows. When no page is free, the prefix cache evicts idle
// pages. If that is not enough, the scheduler preempts a sequence. The preempted sequence waits and
// is recomputed from its tokens, except for pages that are still in the prefix cache, or kept
// outside of the device's memory.
// Fairness: a key names a client of the server. Keys share slots, pages and prompt rows by weight,
// and the requests of a key share the key's part (scheduler_turns.cc). A waiting sequence preempts
// a sequence of lower priority. If no such sequence runs, it preempts a sequence of the key or
// request that holds most of the missing resource. If every key has one sequence, keys take turns.
// Admission order: higher priority; the key with the fewest running sequences by weight; the key
// with the least service (tokens) by weight; the request with the fewest running sequences; arrival
// time.
// Drafts: a decoding sequence may have drafted tokens (`Sequence::draft`). Drafts use only spare
// rows, at most half of the rows that prompts could have, and never use another sequence's row or
// page. A drafted row counts as computed only after the caller accepts it (Keep). A row that is not
// accepted is neither shared nor cached, and the next step overwrites it.
// Recurrent state (models with such layers) is in slots. A running sequence owns one slot with the
// state after its last computed token. The prefix cache keeps more slots, with the state at the
// last page border of a prompt, at the last page border of an answer so far, and at the page border
// where a prompt begins to differ from earlier texts. Each draft of a step also needs a slot, so
// that the sequence can return to the state after its last accepted draft. A preempted sequence
// loses its slot and is recomputed.
// Scored prompts: a scored prompt is one whose tokens' log-probabilities were requested. It needs a
// row of logits for each of its rows, but a step has few rows of logits. Every other prompt that
// may end in the step gets one row of logits. Keys share the remaining rows of logits equally.
// Within a key, the first prompts get them; later prompts with the same beginning then find it in
// the prefix cache.
//
// Pure: no clock, no I/O; the same calls give the same steps. Thread: one caller.
// Sources: Orca (Yu et al. 2022), iteration-level scheduling; Sarathi-Serve (Agrawal et al. 2024),
// chunked prefill with decodes; vLLM (Kwon et al. 2023), paged KV and preemption by recomputation;
// start-time fair queueing (Goyal et al. 1996).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/batch/pages.h"
#include "engine/batch/prefix_cache.h"
#include "engine/page_store/page_key.h"
#include "engine/rank/step_message.h"

namespace weft::engine {

// Number of prompt tokens to compute in one step of at most `most` rows when a prompt of `tokens`
// tokens is the only work. With pipeline stages, the prompt is divided into chunks, one per step.
// The first stage computes the next chunk while later stages compute earlier chunks: S stages and C
// chunks take (C + S - 1) / (C * S) of the time without overlap.
int64_t PromptChunk(int64_t tokens, int64_t most, int64_t stages);

struct Sequence;

struct ScheduleOptions {
    int64_t max_seqs = 32;      // most sequences that run at once
    int64_t step_tokens = 512;  // most rows of a step; at least max_seqs
    int64_t pages = 0;          // in the KV cache
    int64_t page_tokens = 64;
    bool prefix_cache = true;
    int64_t draft_rows = 0;  // most drafted tokens of a step
    // Slots of recurrent state (0: the model has no such state; else at least max_seqs), and how
    // many of these slots the prefix cache may keep.
    int64_t state_slots = 0, kept_states = 0;
    // A step has all rows of a prompt or none of them: rows attend to later rows. step_tokens is at
    // least the length of any prompt; there is no prefix cache.
    bool whole_prompts = false;
};

// Counts over the sequences of one request.
struct RequestUse {
    int64_t sequences = 0, running = 0;
    int64_t pages = 0;              // valid while the scheduler chooses victims
    int64_t plan = 0, prompts = 0;  // number of the last plan that counted the request's prompts,
                                    // and how many it has
};

// Counts over the sequences of one key.
struct KeyUse {
    int64_t sequences = 0, running = 0;
    double weight = 1;
    double served = 0;  // tokens divided by weight
    int64_t since = 0;  // id of the key's first sequence
    std::unordered_map<int64_t, RequestUse> requests{};
    int64_t pages = 0;    // valid while the scheduler chooses victims
    int64_t blocked = 0;  // number of the last plan that could admit none of the key's waiting
                          // sequences
    // Valid within a plan: the key's next waiting sequence; the prompt rows that its prompts could
    // use (demand), the highest priority of these prompts, and the prompt rows that the key may
    // use.
    Sequence* next = nullptr;
    int64_t demand_plan = 0, demand = 0, rows = 0;
    int priority = 0;
    // Valid within a plan: rows of logits that the key's scored prompts may still have
    // (score_rows), and those that its prompts claim so far (score_demand).
    int64_t score_plan = 0, score_rows = 0, score_demand = 0;
    int64_t full_plan = 0;  // number of the last plan before which no pages were free for a seeking
                            // sequence of the key
};

// A request as the scheduler sees it. The caller owns it and appends to `tokens` between Commit and
// the next Plan.
struct Sequence {
    int64_t id = 0;
    std::vector<int32_t> tokens;  // the prompt and the generated tokens
    std::string key{};            // keys share fairly
    int64_t group = 0;            // the request, within the key; 0: the sequence is its own request
    int64_t limit = 0;            // most sequences of the key that run at once; 0: no limit
    int priority = 0;             // higher runs sooner
    double weight = 1;            // of the key
    // Every row from row `score_from` on gets logits; kNotScored: only the last row.
    int64_t score_from = kNotScored;
    bool cached = true;            // may use pages of the prefix cache and add its own
    std::vector<int32_t> draft{};  // drafted tokens after `tokens`
    // When the sequence is recomputed, its last token gets a separate step, which verifies the
    // draft.
    bool last_apart = false;
    int32_t adapter = 0;        // number of the job's adapter, from 1; 0: none
    std::string tenant{};       // owner of the text; only texts of the same tenant share pages
    int64_t second = -1;        // backend::StepSequence::second
    int64_t narrow_tokens = 0;  // the rows of this many first tokens are prompt_rows of a step

    // Owned by the scheduler.
    KeyUse* of_key = nullptr;
    RequestUse* of_request = nullptr;
    int64_t turn = 0;      // progress since admission: see kTurn
    int64_t known = 0;     // most tokens that were ever computed; preemption does not reduce it
    int64_t promised = 0;  // number of the last plan that preempted another sequence for this one
    int64_t wants = 0;     // pages (free or idle) that its admission needs, by the last try; 0: not
                           // tried
    int64_t computed = 0;  // tokens with KV rows, including the rows of `copy`
    int64_t from_cache = 0;  // tokens found in the prefix cache at the first start
    int64_t preempted = 0;   // times
    bool started = false;
    bool running = false;    // admitted and not preempted since
    int64_t plan = 0;        // number of the last plan in which it has rows
    int64_t rank = 0;        // among the prompts of its request; valid while they are planned
    bool in_flight = false;  // its next token is being computed: the scheduler leaves it alone
    std::vector<int32_t> pages{};
    // The cached page whose copy begins this sequence's last page. Held until the copy is made.
    PrefixCache::Part copy{};
    // Slots of recurrent state: the sequence's own (slot); the prefix cache's slot with whose state
    // the next step begins, held until then (state_from); and the slots that the planned step
    // writes: at page borders for the cache (borders), and, in a step with drafts, after each row
    // but the last (draft_slots).
    struct Border {
        int64_t tokens = 0;
        int32_t slot = -1;
    };
    int32_t slot = -1, state_from = -1;
    std::vector<Border> borders{};
    std::vector<int32_t> draft_slots{};
    int64_t drafted_from = 0;  // `computed` before the step's drafts
    int64_t parts_at = 0;      // number of its first tokens, in whole pages, that other texts in
                               // the cache share
    int64_t last_border = 0;   // tokens of the answer after which the cache has its state
    // Kept pages: the keys of its first pages, as far as they were needed; whether more of its
    // pages may be kept (seeks), and the last plan before which no pages were free for them
    // (seek_plan); most first pages to seek (-1: all); number of pages restored so far.
    std::vector<PageKey> page_keys{};
    bool seeks = true;
    int64_t seek_plan = 0, seek_most = -1, restored = 0;
    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - computed; }
    PrefixSpace space() const { return {tenant, adapter}; }
    static constexpr int64_t kNotScored = INT64_MAX;
    bool scored() const { return score_from != kNotScored; }
};

// Rows of one sequence in a step.
struct PlannedRows {
    Sequence* sequence = nullptr;
    int32_t rows = 0;
    int32_t output = -1;  // row of logits for the token after the last one; -1: none yet
    int32_t drafted = 0;  // number of drafted rows, the last of `rows`; their rows of logits follow
                          // `output`
    // Scored sequences: rows [score_begin, score_begin + score_rows) have logits, in rows `scores`
    // and following of the step's logits. (The last row of a prompt has `output` instead.)
    int32_t scores = -1, score_begin = 0, score_rows = 0;
};

struct ScheduleStats {
    int64_t running = 0, waiting = 0;
    int64_t pages = 0, free_pages = 0, idle_pages = 0;
    int64_t free_slots = 0, idle_slots = 0;  // of recurrent state
    int64_t cache_asked = 0, cache_hit = 0;  // prompt tokens since the start: looked up, found
    int64_t preemptions = 0;
    int64_t kept_asked = 0, kept_hit = 0;  // prompt tokens looked up among kept pages: all, found
    int64_t kept_tries = 0;                // how often a sequence's kept pages were looked up
};

// Pages kept outside of the device's memory, as rank 0 sees them.
class KeptPages {
  public:
    virtual ~KeptPages() = default;
    // How many of the first pages of `keys` are kept.
    virtual int64_t Leading(std::span<const PageKey> keys) const = 0;
    virtual bool HasState(const PageKey& key) const = 0;
};

class Scheduler;

// Kept pages to restore for one sequence. Holds their places, and gives them back when it is
// destroyed if EndRestore was not called. The Scheduler must outlive it.
struct RestorePlan {
    RestorePlan() = default;
    RestorePlan(const RestorePlan&) = delete;
    RestorePlan& operator=(const RestorePlan&) = delete;
    ~RestorePlan();

    Sequence* sequence = nullptr;
    std::vector<int32_t> path;     // pages of its text that the prefix cache has
    std::vector<KeyedPage> pages;  // the next pages, and perhaps the state after them
    Scheduler* owner = nullptr;    // of the places; null: there are none
};

class Scheduler {
  public:
    // The only sequence of a key keeps its slot until its progress reaches kTurn; then a sequence
    // of another key may preempt it. Progress is the number of prompt tokens computed for the first
    // time, plus kTokenTurn for each generated token, less the recomputed tokens. So at least half
    // of the work is progress.
    static constexpr int64_t kTurn = 512, kTokenTurn = 8;

    explicit Scheduler(const ScheduleOptions& options);

    // Queues the sequence, which must have at least one token. The KV cache must have enough pages
    // for its full length.
    void Add(Sequence* sequence);
    // Removes a sequence that ended or was cancelled, and frees its pages at once.
    void Remove(Sequence* sequence);
    // Sets `sequences` to those that decode in the next plan if there are pages; they may have
    // drafts.
    void Decodes(std::vector<Sequence*>& sequences) const;
    // Number of draft rows in the next plan beside one row for each of `decodes` sequences.
    int64_t RowsForDrafts(int64_t decodes) const;
    // Gives the sequence pages for at most `most` drafted tokens, and returns for how many tokens
    // they suffice. Takes only pages that no other sequence needs in the next plan, in which
    // `others` more sequences decode one token each.
    int64_t PagesForDraft(Sequence& sequence, int64_t most, int64_t others);
    // Plans the next step into `step` (and increases step.number) and `planned`; false: there is no
    // work. Each sequence whose last token is in the step gets a row of logits, in the order of
    // `planned`.
    bool Plan(StepData& step, std::vector<PlannedRows>& planned);
    // Marks the rows of the planned step as computed, except drafts. Call it after the step has
    // run, or if it is sure to run before the next step.
    void Commit(std::span<const PlannedRows> planned);
    // As Commit, for a step whose logits arrive while later steps run. Sequences that wait for
    // logits of this step have no rows in the later steps. The caller clears Sequence::in_flight
    // when it appends the token.
    void CommitInFlight(std::span<const PlannedRows> planned);
    // Accepts the next draft of the sequence's last step: its row then counts as computed. The
    // caller has already appended the token to `tokens`.
    void Keep(Sequence& sequence);
    // Call it after Keep for all accepted tokens: frees the pages of the rejected ones.
    void EndDraft(Sequence& sequence);
    // Divides decoding sequences among `steps` steps that are in flight at once. A step passes
    // through `stages` stages.
    void ShareOver(int64_t steps, int64_t stages) {
        steps_at_once_ = steps;
        stages_ = stages;
    }
    // The KV cache is lost: all sequences restart from their tokens, in the same order. pages: of
    // the new cache.
    void Forget(int64_t pages);

    // Pages kept outside of the device's memory (page_store/rank_pages.h; scheduler_kept.cc).
    // KeepPages: from now on, with these keys; none: no page is kept. Then call, before each Plan,
    // PlanRestore and EndRestore until PlanRestore returns false or it is time for a step: a
    // sequence has no rows while kept pages of it may be found.
    void KeepPages(std::optional<PageKeys> keys);
    // Pages and states that became known to the prefix cache since the last call, and the first
    // pages of sequences that ended, because these pages were used. Their bytes stay unchanged
    // until the next step or restore, even if the pages are reused.
    std::vector<KeyedPage> TakeSaves() { return std::exchange(saves_, {}); }
    // Chooses a sequence and allocates free pages of the KV cache for at most `most_pages` of its
    // next pages, and a slot for the state after the last of them. False: no kept page is found for
    // any sequence that the next plan may admit. Time does not depend on the number of waiting
    // sequences, except for one look at each.
    bool PlanRestore(const KeptPages& kept, int64_t most_pages, RestorePlan& plan);
    // The first `count` entries of plan.pages were restored: the prefix cache gets them. If the
    // sequence has ended meanwhile, set plan.sequence to null.
    void EndRestore(RestorePlan& plan, int64_t count);
    // Whether a sequence waits for PlanRestore.
    bool seeks() const;
    // The cached pages of a text, up to its last cached state if the model has recurrent state, and
    // that state: with their keys. They stay until Release.
    std::vector<KeyedPage> HoldCached(const PrefixSpace& space, std::span<const int32_t> tokens);
    void Release(std::span<const KeyedPage> held);
    // The keys of the first pages of a text, and of the state after them. Their places are 0.
    std::vector<KeyedPage> KeysOf(const PrefixSpace& space, std::span<const int32_t> tokens,
                                  int64_t pages, bool state) const;

    bool idle() const { return running_.empty() && waiting_.empty(); }
    ScheduleStats stats() const;

  private:
    int64_t MostOutputs() const;
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
    bool PreemptFor(const Sequence& waiting, bool slot, bool own, int64_t room);
    void FindNextOfKeys();
    void MakeWay();
    void Demand(const Sequence& sequence, int64_t left);
    void ShareRows(int64_t left);
    bool AtLimit(const Sequence& sequence) const;
    bool MayPass(const Sequence& sequence, const Sequence& blocked) const;
    bool AdmitOne(Sequence& sequence, StepData& step, std::vector<PlannedRows>& planned);
    void Preempt(Sequence* sequence);
    void ReleasePages(Sequence& sequence);
    void CheckRows(const Sequence& sequence, int64_t rows, int64_t drafted,
                   const StepData& step) const;
    void CheckAllFree() const;
    void Append(Sequence& sequence, int64_t rows, int64_t drafted, StepData& step,
                std::vector<PlannedRows>& planned);
    int64_t PromptRows(const Sequence& sequence, const StepData& step) const;
    int64_t RowsBesideShorter(const Sequence& sequence, std::span<Sequence* const> later) const;
    int64_t RowsFor(const Sequence& sequence) const;
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
    // Kept pages (scheduler_kept.cc).
    void SavePages(Sequence& sequence, int64_t begin, int64_t end);
    void SaveWhole(Sequence& sequence);
    void SaveState(Sequence& sequence, int64_t tokens, int32_t slot);
    void SaveLastState(Sequence& sequence);
    bool Delayed(const Sequence& sequence) const;
    bool Seeks(const Sequence& sequence) const;
    Sequence* NextSeeker() const;
    int64_t StatePages(const Sequence& sequence, int64_t most);
    int64_t PagesToFind(Sequence& sequence, const KeptPages& kept, int64_t known, int64_t enough);
    bool PlanRestoreOf(Sequence& sequence, const KeptPages& kept, int64_t most, RestorePlan& plan);

    ScheduleOptions options_;
    PagePool pool_, slots_;
    PrefixCache cache_;
    int64_t lent_ = 0;                // RestorePlans and results of HoldCached that hold pages
    std::vector<Sequence*> running_;  // in order of admission
    std::vector<Sequence*> waiting_;
    std::vector<int32_t> found_;      // pages; valid in FindPrefix
    std::vector<Sequence*> decodes_;  // valid while decodes are planned
    std::vector<int32_t> rows_;       // token ids of a sequence and its draft; valid in Append
    std::unordered_map<std::string, KeyUse> keys_;  // keys with sequences in this scheduler
    std::vector<KeyUse*> turns_;                    // see FindNextOfKeys
    std::vector<KeyUse*> sharing_;    // keys with prompts; valid while rows are shared
    std::vector<Sequence*> prompts_;  // valid while their rows are planned
    std::vector<Sequence*> victims_;  // valid while they are chosen
    int64_t spare_rows_ = 0;          // prompt rows that no key may claim
    int64_t score_rows_ = 0;          // remaining rows of logits for scored prompts
    int64_t steps_at_once_ = 1, stages_ = 1;
    int64_t plan_ = 0;                        // the current or last plan
    int64_t seek_plan_ = 0, seek_tries_ = 0;  // kept pages were looked up this often before that
                                              // plan, for waiting sequences
    ScheduleStats stats_;
    std::optional<PageKeys> page_keys_;
    std::vector<KeyedPage> saves_;
};

}  // namespace weft::engine
