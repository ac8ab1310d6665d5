#include "engine/batch/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::engine {
namespace {

// With fewer prompt rows, the time to read the weights would dominate a step.
constexpr int64_t kLeastChunk = 64;
constexpr int64_t kChunksPerStage = 4;

}  // namespace

int64_t PromptChunk(int64_t tokens, int64_t most, int64_t stages) {
    if (stages == 1) return most;
    const int64_t parts = stages * kChunksPerStage;
    return std::min(most, std::max((tokens + parts - 1) / parts, kLeastChunk));
}

Scheduler::Scheduler(const ScheduleOptions& options)
    : options_(options),
      pool_(options.pages),
      slots_(options.state_slots),
      cache_(pool_, options.page_tokens, &slots_) {
    WEFT_CHECK(options.step_tokens >= options.max_seqs && options.max_seqs > 0);
    WEFT_CHECK(!has_state() || options.state_slots >= options.max_seqs);
    WEFT_CHECK(!options.whole_prompts || !options.prefix_cache);
}

int64_t Scheduler::PagesFor(int64_t tokens) const {
    return (tokens + options_.page_tokens - 1) / options_.page_tokens;
}

int64_t Scheduler::Left(const StepData& step) const {
    return options_.step_tokens - static_cast<int64_t>(step.tokens.size());
}

// A key that returns has no credit for its idle time: it starts with the least service of the
// present keys.
void Scheduler::Add(Sequence* sequence) {
    WEFT_CHECK(!sequence->tokens.empty());
    WEFT_CHECK(!options_.whole_prompts ||
               std::cmp_less_equal(sequence->tokens.size(), options_.step_tokens));
    const auto [at, is_new] = keys_.try_emplace(sequence->key);
    KeyUse& key = at->second;
    if (is_new) {
        key.since = sequence->id;
        bool first = true;
        for (const auto& [name, other] : keys_) {
            if (&other == &key) continue;
            key.served = first ? other.served : std::min(key.served, other.served);
            first = false;
        }
    }
    key.weight = std::max(sequence->weight, 1e-6);
    ++key.sequences;
    const int64_t group = sequence->group == 0 ? sequence->id : sequence->group;
    sequence->of_key = &key;
    sequence->of_request = &key.requests[group];
    ++sequence->of_request->sequences;
    waiting_.push_back(sequence);
}

void Scheduler::Remove(Sequence* sequence) {
    KeepTail(*sequence);
    SaveWhole(*sequence);
    SaveLastState(*sequence);
    ReleasePages(*sequence);
    if (sequence->running) Count(*sequence, -1);
    std::erase(running_, sequence);
    std::erase(waiting_, sequence);
    KeyUse& key = *sequence->of_key;
    if (--sequence->of_request->sequences == 0) {
        key.requests.erase(sequence->group == 0 ? sequence->id : sequence->group);
    }
    if (--key.sequences == 0) keys_.erase(sequence->key);
    if (keys_.empty() && lent_ == 0) CheckAllFree();
}

// Without sequences, every page and slot is free or only the prefix cache's: none is lost.
void Scheduler::CheckAllFree() const {
    WEFT_CHECK(pool_.free() + pool_.idle() == pool_.size());
    WEFT_CHECK(slots_.free() + slots_.idle() == slots_.size());
}

void Scheduler::ReleasePages(Sequence& sequence) {
    DropCopy(sequence);
    ReleaseSlots(sequence);
    for (const int32_t page : sequence.pages) pool_.Release(page);
    sequence.pages.clear();
    sequence.computed = 0;
}

// Takes pages for the first `tokens` tokens from free or idle pages; false: there are too few.
// Gives up a planned page copy first.
bool Scheduler::Reserve(Sequence& sequence, int64_t tokens) {
    const int64_t more = PagesFor(tokens) - static_cast<int64_t>(sequence.pages.size());
    if (more <= 0) return true;
    if (pool_.free() + pool_.idle() < more) DropCopy(sequence);
    if (pool_.free() + pool_.idle() < more) return false;
    cache_.Evict(more);
    WEFT_CHECK(pool_.free() >= more);
    for (int64_t i = 0; i < more; ++i) sequence.pages.push_back(pool_.Take());
    return true;
}

void Scheduler::Preempt(Sequence* sequence) {
    KeepTail(*sequence);
    ReleasePages(*sequence);
    ++sequence->preempted;
    sequence->seeks = true;
    ++stats_.preemptions;
    std::erase(running_, sequence);
    Count(*sequence, -1);
    sequence->running = false;
    waiting_.push_back(sequence);
}

// Reserve, with preemption if needed.
bool Scheduler::Grow(Sequence& sequence, int64_t tokens) {
    while (!Reserve(sequence, tokens)) {
        Sequence* victim = Victim(sequence);
        if (victim == nullptr) return false;
        Preempt(victim);
    }
    return true;
}

// Finds the next tokens in the cache: whole pages and a part of one. Replaces a page that the
// sequence has begun if the cache has more of it. The last token and all scored tokens are always
// computed, because their logits are needed.
void Scheduler::FindPrefix(Sequence& s) {
    if (!options_.prefix_cache || !s.cached || s.copy.tokens > 0) return;
    const int64_t most = std::min(static_cast<int64_t>(s.tokens.size()) - 1, s.score_from);
    if (has_state()) return FindState(s, most);
    const int64_t had = s.computed / options_.page_tokens;
    found_.clear();
    cache_.Extend(s.space(), s.tokens, had, most, found_);
    const int64_t whole = had + static_cast<int64_t>(found_.size());
    const PrefixCache::Part part = cache_.FindPart(s.space(), s.tokens, whole, most);
    const int64_t known = whole * options_.page_tokens + part.tokens;
    if (known <= s.computed) return;  // and no whole page was found
    while (static_cast<int64_t>(s.pages.size()) > had) {
        pool_.Release(s.pages.back());
        s.pages.pop_back();
    }
    s.pages.insert(s.pages.end(), found_.begin(), found_.end());
    if (part.tokens > 0) pool_.Hold(part.page);
    s.copy = part;
    s.computed = known;
}

// The tokens of the copy are computed instead.
void Scheduler::DropCopy(Sequence& s) {
    if (s.copy.tokens == 0) return;
    pool_.Release(s.copy.page);
    s.computed -= s.copy.tokens;
    s.copy = {};
}

// Before a sequence leaves its pages: caches the computed part of the last one, for later sequences
// with the same text. (A copy that is not made yet is not new.)
void Scheduler::KeepTail(const Sequence& s) {
    const int64_t whole = s.computed / options_.page_tokens;
    if (!options_.prefix_cache || !s.cached || s.copy.tokens > 0 || has_state()) return;
    if (s.computed == whole * options_.page_tokens) return;
    cache_.InsertPart(s.space(), std::span(s.tokens).first(static_cast<size_t>(s.computed)),
                      s.pages[static_cast<size_t>(whole)]);
}

void Scheduler::CountFound(Sequence& s, int64_t found) {
    if (s.preempted > 0) return;
    s.from_cache += found;
    stats_.cache_hit += found;
}

// The rows to compute follow the computed ones, and their pages are the sequence's own: a row that
// is written to a page of another sequence changes that one's answer. (The first page may have
// other holders, which use its first rows only.)
void Scheduler::CheckRows(const Sequence& s, int64_t rows, int64_t drafted,
                          const StepData& step) const {
    WEFT_CHECK(rows > 0 && rows <= s.pending() && s.running && !s.in_flight);
    WEFT_CHECK(drafted == 0 || (rows == s.pending() && drafted <= std::ssize(s.draft)));
    WEFT_CHECK(rows + drafted <= Left(step));
    const int64_t pages = PagesFor(s.computed + rows + drafted);
    WEFT_CHECK(pages <= std::ssize(s.pages));
    for (int64_t i = PagesFor(s.computed); i < pages; ++i) {
        WEFT_CHECK(pool_.has_one_holder(s.pages[static_cast<size_t>(i)]));
    }
}

void Scheduler::Append(Sequence& s, int64_t rows, int64_t drafted, StepData& step,
                       std::vector<PlannedRows>& planned) {
    CheckRows(s, rows, drafted, step);
    PlannedRows plan{&s, static_cast<int32_t>(rows + drafted), -1, static_cast<int32_t>(drafted)};
    s.plan = plan_;
    if (s.copy.tokens > 0) {
        step.copies.push_back(
            {s.copy.page, s.pages[static_cast<size_t>(s.computed / options_.page_tokens)]});
    }
    StepData::Sequence of_step;
    of_step.adapter = s.adapter;
    of_step.second = static_cast<int32_t>(s.second);
    of_step.prompt_rows =
        static_cast<int32_t>(std::clamp<int64_t>(s.narrow_tokens - s.computed, 0, rows));
    of_step.pages.assign(s.pages.begin(), s.pages.begin() + PagesFor(s.computed + plan.rows));
    if (has_state()) {
        PlanState(s, rows, drafted, static_cast<int32_t>(step.tokens.size()), of_step);
    }
    const auto first = s.tokens.begin() + static_cast<ptrdiff_t>(s.computed);
    rows_.assign(first, first + static_cast<ptrdiff_t>(rows));
    rows_.insert(rows_.end(), s.draft.begin(), s.draft.begin() + static_cast<ptrdiff_t>(drafted));
    step.Append(rows_, s.computed, std::move(of_step));
    if (const int64_t outputs = ScoresOf(s, rows); outputs > 0) {
        plan.scores = static_cast<int32_t>(step.output_rows.size());
        plan.score_begin = static_cast<int32_t>(rows - outputs);
        plan.score_rows = static_cast<int32_t>(outputs - (rows == s.pending() ? 1 : 0));
        const auto begin = static_cast<int32_t>(step.tokens.size()) - plan.rows + plan.score_begin;
        for (int32_t row = 0; row < plan.score_rows; ++row) step.output_rows.push_back(begin + row);
        s.of_key->score_rows -= outputs;
        score_rows_ -= outputs;
    }
    if (rows == s.pending()) {
        plan.output = static_cast<int32_t>(step.output_rows.size());
        const auto end = static_cast<int32_t>(step.tokens.size());
        for (auto row = end - plan.drafted - 1; row < end; ++row) step.output_rows.push_back(row);
    }
    planned.push_back(plan);
    s.of_key->served += static_cast<double>(rows) / s.of_key->weight;
}

void Scheduler::Decodes(std::vector<Sequence*>& sequences) const {
    sequences.clear();
    const int64_t saying =
        std::ranges::count_if(running_, [](const Sequence* s) { return s->pending() <= 1; });
    const int64_t most = (saying + steps_at_once_ - 1) / steps_at_once_;
    for (Sequence* s : running_) {
        if (static_cast<int64_t>(sequences.size()) >= most) return;
        if (s->pending() == 1) sequences.push_back(s);
    }
}

// Rows that remain after one for each of `decodes` sequences; with prompts to read, half of them.
int64_t Scheduler::RowsForDrafts(int64_t decodes) const {
    const auto reads = [](const Sequence* s) { return s->pending() > 1; };
    const bool prompts = !waiting_.empty() || std::ranges::any_of(running_, reads);
    const int64_t left = options_.step_tokens - decodes;
    return std::min(options_.draft_rows, prompts ? left / 2 : left);
}

// Takes only pages that need no preemption.
int64_t Scheduler::PagesForDraft(Sequence& s, int64_t most, int64_t others) {
    if (s.pending() != 1 || s.copy.tokens > 0) return 0;
    if (has_state()) most = SlotsForDraft(s, most);
    const int64_t tokens = s.computed + 1;
    const int64_t more = PagesFor(tokens + most) - static_cast<int64_t>(s.pages.size());
    if (pool_.free() + pool_.idle() >= more + others && Reserve(s, tokens + most)) return most;
    const int64_t there = static_cast<int64_t>(s.pages.size()) * options_.page_tokens - tokens;
    return std::clamp<int64_t>(there, 0, most);
}

// Sequences with one token to compute, in order of admission. Drafts follow once every sequence has
// a row. (Preempt changes running_.)
void Scheduler::PlanDecodes(StepData& step, std::vector<PlannedRows>& planned) {
    Decodes(decodes_);
    for (Sequence*& s : decodes_) {
        if (!s->running) {
            s = nullptr;
        } else if (Grow(*s, s->computed + 1)) {
            s->plan = plan_;
        } else {
            Preempt(std::exchange(s, nullptr));
        }
    }
    std::erase(decodes_, nullptr);
    int64_t left = RowsForDrafts(static_cast<int64_t>(decodes_.size()));
    for (Sequence* s : decodes_) {
        const int64_t wanted = std::min(left, static_cast<int64_t>(s->draft.size()));
        const int64_t drafted = PagesForDraft(*s, wanted, 0);
        left -= drafted;
        Append(*s, 1, drafted, step, planned);
    }
}

// Number of scored rows among a sequence's next `rows`, the last row of the prompt included.
int64_t Scheduler::ScoresOf(const Sequence& s, int64_t rows) {
    return s.scored() ? std::clamp<int64_t>(s.computed + rows - s.score_from, 0, rows) : 0;
}

// Most rows of logits of a step.
int64_t Scheduler::MostOutputs() const {
    return std::min(options_.max_seqs + options_.draft_rows, options_.step_tokens);
}

// Shares the rows of logits that the decodes leave. An unscored sequence needs at most one row;
// with a scored sequence in the step, there are at most max_seqs - 1 unscored ones.
void Scheduler::ShareScores(const StepData& step) {
    int64_t others = 0;
    sharing_.clear();
    const auto note = [&](const Sequence& s) {
        KeyUse& key = *s.of_key;
        if (!s.scored()) {
            ++others;
        } else if (std::exchange(key.score_plan, plan_) != plan_) {
            sharing_.push_back(&key);
        }
    };
    for (const Sequence* s : running_) {
        if (s->pending() > 1) note(*s);
    }
    for (const Sequence* s : waiting_) note(*s);
    const auto planned = static_cast<int64_t>(step.sequences.size());
    others = std::min(others, options_.max_seqs - planned - 1);
    score_rows_ = MostOutputs() - static_cast<int64_t>(step.output_rows.size()) - others;
    if (sharing_.empty()) return;
    const auto keys = static_cast<int64_t>(sharing_.size());
    for (KeyUse* key : sharing_) {
        key->score_rows = std::max<int64_t>(1, score_rows_ / keys);
        key->score_demand = 0;
    }
}

// Number of next rows whose logits, if needed, fit into `left` rows for scores.
int64_t Scheduler::RowsWithLogits(const Sequence& s, int64_t rows, int64_t left) const {
    return std::min(rows, rows - ScoresOf(s, rows) + std::max<int64_t>(0, left));
}

// Next rows of a prompt or of a recomputed sequence. Divides a prompt that is alone in the
// pipeline.
int64_t Scheduler::PromptRows(const Sequence& s, const StepData& step) const {
    const int64_t kept = s.last_apart && s.pending() > 1 ? 1 : 0;
    int64_t rows = std::min(s.pending() - kept, Left(step));
    if (options_.whole_prompts) return rows < s.pending() ? 0 : rows;
    if (s.scored()) rows = RowsWithLogits(s, rows, std::min(s.of_key->score_rows, score_rows_));
    if (running_.size() + waiting_.size() > 1) return rows;
    const auto tokens = static_cast<int64_t>(s.tokens.size());
    return std::min(rows, PromptChunk(tokens, options_.step_tokens, stages_));
}

// Admits the first sequence of each request, then the second of each, and so on, so that a request
// with many sequences does not delay the others. Of these, the prompt that was admitted first comes
// first, then prompts with fewer rows left.
void Scheduler::PlanPrefills(StepData& step, std::vector<PlannedRows>& planned) {
    prompts_.clear();
    for (Sequence* s : running_) {
        if (s->pending() <= 1 || Delayed(*s)) continue;
        RequestUse& request = *s->of_request;
        if (std::exchange(request.plan, plan_) != plan_) request.prompts = 0;
        s->rank = request.prompts++;
        prompts_.push_back(s);
    }
    if (prompts_.size() > 2) {
        std::ranges::stable_sort(prompts_.begin() + 1, prompts_.end(), {}, [](const Sequence* s) {
            return std::tuple(s->rank, -int64_t{s->priority}, s->pending());
        });
    }
    // (With several keys, ShareRows has found them.)
    if (!prompts_.empty() && keys_.size() == 1) FindNextOfKeys();
    for (size_t i = 0; i < prompts_.size(); ++i) {
        Sequence* s = prompts_[i];
        if (Left(step) <= 0) return;
        const int64_t before = s->computed;
        FindPrefix(*s);
        const int64_t most = RowsBesideShorter(*s, std::span(prompts_).subspan(i + 1));
        const int64_t rows = TakeRows(*s, std::min(PromptRows(*s, step), most));
        if (rows == 0) DropCopy(*s);  // by the next step the cache may have more
        // Sequences with rows in this step can't be preempted any more.
        const bool fits = rows > 0 && Reserve(*s, s->computed + rows);
        CountFound(*s, s->computed - before);
        if (fits) Append(*s, rows, 0, step, planned);
        if (!fits) spare_rows_ += rows;
    }
}

// Rows that a prompt may use. It leaves to shorter prompts of its key the rows that they need, at
// most half of the rows. later: the prompts after it.
int64_t Scheduler::RowsBesideShorter(const Sequence& s, std::span<Sequence* const> later) const {
    const int64_t all = RowsFor(s), half = (all + 1) / 2;
    int64_t shorter = 0;
    const auto add = [&](const Sequence& other) {
        const bool counts = other.of_key == s.of_key && other.of_request != s.of_request &&
                            other.priority >= s.priority && other.pending() < s.pending();
        if (counts) shorter += other.pending();
    };
    for (const Sequence* other : later) {
        if (shorter < half) add(*other);
    }
    const Sequence* next = s.of_key->next;
    const bool room = std::cmp_less(running_.size(), options_.max_seqs);
    if (next != nullptr && room && !AtLimit(*next) && next->wants <= Room()) add(*next);
    return std::max(half, all - shorter);
}

// Rows of the step that a sequence may use: the rows of its key, and unclaimed rows.
int64_t Scheduler::RowsFor(const Sequence& s) const {
    return spare_rows_ + (s.of_key->demand_plan == plan_ ? s.of_key->rows : 0);
}

// Takes up to `rows` rows from the key's share, then from the unclaimed rows.
int64_t Scheduler::TakeRows(const Sequence& s, int64_t rows) {
    KeyUse& key = *s.of_key;
    if (key.demand_plan != plan_) key.rows = 0;
    const int64_t own = std::min(rows, key.rows), spare = std::min(rows - own, spare_rows_);
    key.rows -= own;
    spare_rows_ -= spare;
    return own + spare;
}

// Returns false if pages or slots are missing, or the step has no more rows for its key.
bool Scheduler::AdmitOne(Sequence& s, StepData& step, std::vector<PlannedRows>& planned) {
    if (options_.whole_prompts ? Left(step) < s.pending() : RowsFor(s) <= 0) return false;
    if (has_state() && !TakeOwnSlot(s)) return false;
    FindPrefix(s);
    // The whole sequence must fit now, or it would be preempted again.
    const int64_t room = Room();
    if (room < Owed(s)) DropCopy(s);
    const bool fits = Room() >= Owed(s);
    s.wants = Owed(s) + std::ranges::count_if(
                            s.pages, [&](int32_t page) { return pool_.holders(page) == 1; });
    const int64_t wanted = fits ? PromptRows(s, step) : 0;
    const int64_t rows = options_.whole_prompts ? wanted : TakeRows(s, wanted);
    // A scored prompt is admitted without a row when others have the step's logits, so it does not
    // delay others of its key.
    if (!fits || (rows == 0 && wanted > 0) || !Reserve(s, s.computed + rows)) {
        ReleasePages(s);
        return false;
    }
    std::erase(waiting_, &s);
    running_.push_back(&s);
    s.running = true;
    s.turn = 0;
    Count(s, 1);
    if (!s.started) stats_.cache_asked += static_cast<int64_t>(s.tokens.size());
    s.started = true;
    if (rows == 0) DropCopy(s);
    CountFound(s, s.computed);
    if (rows > 0) Append(s, rows, 0, step, planned);
    return true;
}

// Skips a key whose next sequence can't be admitted; if that sequence lacks pages, only keys that
// hold fewer pages may pass it (MayPass).
void Scheduler::Admit(StepData& step, std::vector<PlannedRows>& planned) {
    const Sequence* blocked = nullptr;
    bool summed = false;  // the pages of keys
    bool sorted = false;  // turns_, without blocked keys; only an admission changes their order
    while (Left(step) > 0 && static_cast<int64_t>(running_.size()) < options_.max_seqs) {
        if (!std::exchange(sorted, true)) {
            FindNextOfKeys();
            std::erase_if(turns_, [&](const KeyUse* key) { return key->blocked == plan_; });
        }
        Sequence* s = NextWaiting();
        if (s == nullptr) return;
        if (blocked != nullptr && !std::exchange(summed, true)) SumPages();
        const bool may = !AtLimit(*s) && (blocked == nullptr || MayPass(*s, *blocked));
        if (may && AdmitOne(*s, step, planned)) {
            summed = sorted = false;
            continue;
        }
        s->of_key->blocked = plan_;
        turns_.erase(turns_.begin());
        if (may && blocked == nullptr && s->wants > Room()) blocked = s;
    }
}

bool Scheduler::Plan(StepData& step, std::vector<PlannedRows>& planned) {
    ++plan_;
    step.Clear();
    planned.clear();
    MakeWay();
    PlanDecodes(step, planned);
    ShareScores(step);
    ShareRows(Left(step));
    PlanPrefills(step, planned);
    Admit(step, planned);
    if (planned.empty()) PlanFirst(step, planned);
    if (planned.empty()) --step.number;
    return !planned.empty();
}

// Prompts that hold pages may block each other; the first then continues and the last ones are
// preempted. The step is empty so far, so the first may have all of its rows of logits.
void Scheduler::PlanFirst(StepData& step, std::vector<PlannedRows>& planned) {
    const auto ready = [&](const Sequence* s) {
        return s->pending() > 0 && !s->in_flight && !Delayed(*s);
    };
    const auto first = std::ranges::find_if(running_, ready);
    if (first == running_.end()) return;
    Sequence* s = *first;
    s->of_key->score_rows = score_rows_ = MostOutputs();
    const int64_t rows = PromptRows(*s, step);
    while (!Reserve(*s, s->computed + rows)) {
        const auto last = std::find_if(running_.rbegin(), running_.rend(), ready);
        if (*last == s) return;
        Preempt(*last);
    }
    Append(*s, rows, 0, step, planned);
}

// Marks `rows` more rows as computed. Adds pages that are now full to the cache.
void Scheduler::Advance(Sequence& s, int64_t rows) {
    const int64_t before = s.computed / options_.page_tokens;
    const int64_t again = std::clamp<int64_t>(s.known - s.computed, 0, rows);
    s.turn += (rows == 1 ? kTokenTurn : 1) * (rows - again) - again;
    s.computed += rows;
    s.known = std::max(s.known, s.computed);
    const int64_t after = s.computed / options_.page_tokens;
    if (after == before || !options_.prefix_cache || !s.cached) return;
    cache_.Insert(s.space(), s.tokens, std::span(s.pages).first(static_cast<size_t>(after)));
    SavePages(s, before, after);
}

void Scheduler::Commit(std::span<const PlannedRows> planned) {
    for (const PlannedRows& plan : planned) {
        Sequence& s = *plan.sequence;
        WEFT_CHECK(s.plan == plan_ && PagesFor(s.computed + plan.rows) <= std::ssize(s.pages));
        if (s.copy.tokens > 0) pool_.Release(s.copy.page);
        s.copy = {};
        const int64_t rows = plan.rows - plan.drafted;
        Advance(s, rows);
        if (has_state()) CommitState(s);
        // End of a prompt: others may start with the same text while this one decodes.
        if (plan.output >= 0 && rows > 1) KeepTail(s);
    }
}

void Scheduler::Keep(Sequence& s) {
    WEFT_CHECK(s.computed < static_cast<int64_t>(s.tokens.size()));
    Advance(s, 1);
    s.of_key->served += 1 / s.of_key->weight;
}

void Scheduler::EndDraft(Sequence& s) {
    s.draft.clear();
    if (has_state()) KeepDraftState(s);
    while (static_cast<int64_t>(s.pages.size()) > PagesFor(s.computed + 1)) {
        pool_.Release(s.pages.back());
        s.pages.pop_back();
    }
}

void Scheduler::CommitInFlight(std::span<const PlannedRows> planned) {
    Commit(planned);
    for (const PlannedRows& plan : planned) plan.sequence->in_flight = plan.output >= 0;
}

void Scheduler::Forget(int64_t pages) {
    for (Sequence* s : running_) {
        ReleasePages(*s);
        Count(*s, -1);
        s->in_flight = s->running = false;
        s->known = 0;
    }
    cache_.Clear();
    saves_.clear();
    CheckAllFree();
    pool_ = PagePool(pages);
    waiting_.insert(waiting_.begin(), running_.begin(), running_.end());
    for (Sequence* s : running_) ++s->preempted;
    running_.clear();
    for (Sequence* s : waiting_) s->seeks = true;
}

ScheduleStats Scheduler::stats() const {
    ScheduleStats stats = stats_;
    stats.running = static_cast<int64_t>(running_.size());
    stats.waiting = static_cast<int64_t>(waiting_.size());
    stats.pages = pool_.size();
    stats.free_pages = pool_.free();
    stats.idle_pages = pool_.idle();
    stats.free_slots = slots_.free();
    stats.idle_slots = slots_.idle();
    return stats;
}

}  // namespace weft::engine
