#include "engine/batch/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::engine {
namespace {

// A step of fewer rows of a prompt would be bound by reading the weights.
constexpr int64_t kLeastChunk = 64;
constexpr int64_t kChunksPerStage = 4;

}  // namespace

int64_t PromptChunk(int64_t tokens, int64_t most, int64_t stages) {
    if (stages == 1) return most;
    const int64_t parts = stages * kChunksPerStage;
    return std::min(most, std::max((tokens + parts - 1) / parts, kLeastChunk));
}

Scheduler::Scheduler(const ScheduleOptions& options)
    : options_(options), pool_(options.pages), cache_(pool_, options.page_tokens) {
    WEFT_CHECK(options.step_tokens >= options.max_seqs && options.max_seqs > 0);
}

int64_t Scheduler::PagesFor(int64_t tokens) const {
    return (tokens + options_.page_tokens - 1) / options_.page_tokens;
}

int64_t Scheduler::Left(const StepData& step) const {
    return options_.step_tokens - static_cast<int64_t>(step.tokens.size());
}

// A key that comes back after a while has not saved up time in which it asked for nothing: it
// begins with the least of those that are here.
void Scheduler::Add(Sequence* sequence) {
    WEFT_CHECK(!sequence->tokens.empty());
    if (!served_.contains(sequence->key)) {
        double least = 0;
        bool first = true;
        for (const auto& [key, served] : served_) {
            least = first ? served : std::min(least, served);
            first = false;
        }
        served_[sequence->key] = least;
    }
    waiting_.push_back(sequence);
}

void Scheduler::Remove(Sequence* sequence) {
    KeepTail(*sequence);
    ReleasePages(*sequence);
    std::erase(running_, sequence);
    std::erase(waiting_, sequence);
    const auto same_key = [&](const Sequence* other) { return other->key == sequence->key; };
    if (std::ranges::none_of(running_, same_key) && std::ranges::none_of(waiting_, same_key)) {
        served_.erase(sequence->key);
    }
}

void Scheduler::ReleasePages(Sequence& sequence) {
    DropCopy(sequence);
    for (const int32_t page : sequence.pages) pool_.LetGo(page);
    sequence.pages.clear();
    sequence.computed = 0;
}

bool Scheduler::Sooner(const Sequence& a, const Sequence& b) const {
    if (a.priority != b.priority) return a.priority > b.priority;
    // Who was taken back has waited its turn before.
    if ((a.preempted > 0) != (b.preempted > 0)) return a.preempted > 0;
    if (a.key != b.key) {
        const double mine = served_.at(a.key), others = served_.at(b.key);
        if (mine != others) return mine < others;
    }
    return a.id < b.id;
}

size_t Scheduler::BestWaiting() const {
    const auto best = std::ranges::min_element(
        waiting_, [&](const Sequence* a, const Sequence* b) { return Sooner(*a, *b); });
    return static_cast<size_t>(best - waiting_.begin());
}

// Pages for the first `tokens` tokens, from what is free or idle; false: there are not enough. A
// page that is to be copied is given up before that.
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

// Whom `wanting` may push out: of less priority, or of the same and let in after it; and with no
// rows in this step yet.
Sequence* Scheduler::Victim(const Sequence& wanting) const {
    Sequence* victim = nullptr;
    bool after = false;
    for (Sequence* other : running_) {
        if (other == &wanting) {
            after = true;
            continue;
        }
        if (other->plan == plan_ || other->in_flight) continue;
        const bool less = other->priority < wanting.priority;
        if (!less && !(after && other->priority == wanting.priority)) continue;
        if (victim == nullptr || other->priority <= victim->priority) victim = other;
    }
    return victim;
}

void Scheduler::Preempt(Sequence* sequence) {
    KeepTail(*sequence);
    ReleasePages(*sequence);
    ++sequence->preempted;
    ++stats_.preemptions;
    std::erase(running_, sequence);
    sequence->running = false;
    waiting_.push_back(sequence);
}

// Reserve, at the cost of others if need be.
bool Scheduler::Grow(Sequence& sequence, int64_t tokens) {
    while (!Reserve(sequence, tokens)) {
        Sequence* victim = Victim(sequence);
        if (victim == nullptr) return false;
        Preempt(victim);
    }
    return true;
}

// What the cache knows of the tokens that come next, in whole pages and a part of one. A page that
// the sequence has begun itself goes where the cache knows more of it. The last token is always
// computed: its logits are wanted.
void Scheduler::FindPrefix(Sequence& s) {
    if (!options_.prefix_cache || !s.cached || s.copy.tokens > 0) return;
    const int64_t most = static_cast<int64_t>(s.tokens.size()) - 1;
    const int64_t had = s.computed / options_.page_tokens;
    found_.clear();
    cache_.Extend(s.space(), s.tokens, had, most, found_);
    const int64_t whole = had + static_cast<int64_t>(found_.size());
    const PrefixCache::Part part = cache_.FindPart(s.space(), s.tokens, whole, most);
    const int64_t known = whole * options_.page_tokens + part.tokens;
    if (known <= s.computed) return;  // and nothing whole was found
    while (static_cast<int64_t>(s.pages.size()) > had) {
        pool_.LetGo(s.pages.back());
        s.pages.pop_back();
    }
    s.pages.insert(s.pages.end(), found_.begin(), found_.end());
    if (part.tokens > 0) pool_.Hold(part.page);
    s.copy = part;
    s.computed = known;
}

// Those tokens are computed after all.
void Scheduler::DropCopy(Sequence& s) {
    if (s.copy.tokens == 0) return;
    pool_.LetGo(s.copy.page);
    s.computed -= s.copy.tokens;
    s.copy = {};
}

// Of a sequence that leaves its pages: the last one, as far as it is computed, for whoever comes
// with the same text. (A copy that is not made yet is nothing new.)
void Scheduler::KeepTail(const Sequence& s) {
    const int64_t whole = s.computed / options_.page_tokens;
    if (!options_.prefix_cache || !s.cached || s.copy.tokens > 0) return;
    if (s.computed == whole * options_.page_tokens) return;
    cache_.InsertPart(s.space(), std::span(s.tokens).first(static_cast<size_t>(s.computed)),
                      s.pages[static_cast<size_t>(whole)]);
}

void Scheduler::CountFound(Sequence& s, int64_t found) {
    if (s.preempted > 0) return;
    s.from_cache += found;
    stats_.cache_hit += found;
}

void Scheduler::Append(Sequence& s, int64_t rows, int64_t drafted, StepData& step,
                       std::vector<PlannedRows>& planned) {
    PlannedRows plan{&s, static_cast<int32_t>(rows + drafted), -1, static_cast<int32_t>(drafted)};
    s.plan = plan_;
    if (s.copy.tokens > 0) {
        step.copies.push_back(
            {s.copy.page, s.pages[static_cast<size_t>(s.computed / options_.page_tokens)]});
    }
    StepData::Sequence of_step;
    of_step.adapter = s.adapter;
    of_step.pages.assign(s.pages.begin(), s.pages.begin() + PagesFor(s.computed + plan.rows));
    const auto first = s.tokens.begin() + static_cast<ptrdiff_t>(s.computed);
    rows_.assign(first, first + static_cast<ptrdiff_t>(rows));
    rows_.insert(rows_.end(), s.draft.begin(), s.draft.begin() + static_cast<ptrdiff_t>(drafted));
    step.Append(rows_, s.computed, std::move(of_step));
    if (rows == s.pending()) {
        plan.output = static_cast<int32_t>(step.output_rows.size());
        const auto end = static_cast<int32_t>(step.tokens.size());
        for (auto row = end - plan.drafted - 1; row < end; ++row) step.output_rows.push_back(row);
    }
    planned.push_back(plan);
    served_[s.key] += static_cast<double>(rows) / std::max(s.weight, 1e-6);
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

// What is left once each of `decodes` sequences has its row; where prompts are to be read, half.
int64_t Scheduler::RowsForDrafts(int64_t decodes) const {
    const auto reads = [](const Sequence* s) { return s->pending() > 1; };
    const bool prompts = !waiting_.empty() || std::ranges::any_of(running_, reads);
    const int64_t left = options_.step_tokens - decodes;
    return std::min(options_.draft_rows, prompts ? left / 2 : left);
}

// Nobody has to be pushed out for them.
int64_t Scheduler::PagesForDraft(Sequence& s, int64_t most, int64_t others) {
    if (s.pending() != 1 || s.copy.tokens > 0) return 0;
    const int64_t tokens = s.computed + 1;
    const int64_t more = PagesFor(tokens + most) - static_cast<int64_t>(s.pages.size());
    if (pool_.free() + pool_.idle() >= more + others && Reserve(s, tokens + most)) return most;
    const int64_t there = static_cast<int64_t>(s.pages.size()) * options_.page_tokens - tokens;
    return std::clamp<int64_t>(there, 0, most);
}

// Sequences of which one token is left to compute. Those let in first go first, and push out those
// let in last; drafts come when everybody has a row. (Preempt changes running_.)
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

// Of a prompt, or of whatever is to be computed again. One that has the pipeline to itself is cut.
int64_t Scheduler::PromptRows(const Sequence& s, const StepData& step) const {
    const int64_t kept = s.last_apart && s.pending() > 1 ? 1 : 0;
    const int64_t rows = std::min(s.pending() - kept, Left(step));
    if (running_.size() + waiting_.size() > 1) return rows;
    const auto tokens = static_cast<int64_t>(s.tokens.size());
    return std::min(rows, PromptChunk(tokens, options_.step_tokens, stages_));
}

void Scheduler::PlanPrefills(StepData& step, std::vector<PlannedRows>& planned) {
    const std::vector<Sequence*> order = running_;
    for (Sequence* s : order) {
        if (Left(step) <= 0) return;
        if (s->pending() <= 1 || !s->running) continue;
        const int64_t before = s->computed;
        FindPrefix(*s);
        const int64_t rows = PromptRows(*s, step);
        // Rows of this step are planned already: nobody in it may be pushed out any more.
        const bool fits = Reserve(*s, s->computed + rows);
        CountFound(*s, s->computed - before);
        if (fits) Append(*s, rows, 0, step, planned);
    }
}

// For all of its tokens, and one after them.
bool Scheduler::HasRoom(const Sequence& s) const {
    const int64_t more = PagesFor(static_cast<int64_t>(s.tokens.size()) + 1) -
                         static_cast<int64_t>(s.pages.size());
    return pool_.free() + pool_.idle() >= more;
}

void Scheduler::Admit(StepData& step, std::vector<PlannedRows>& planned) {
    while (!waiting_.empty() && Left(step) > 0 &&
           static_cast<int64_t>(running_.size()) < options_.max_seqs) {
        const size_t best = BestWaiting();
        Sequence* s = waiting_[best];
        FindPrefix(*s);
        // The whole of it must fit now, or it would be pushed out again.
        if (!HasRoom(*s)) DropCopy(*s);
        const int64_t rows = PromptRows(*s, step);
        if (!HasRoom(*s) || !Reserve(*s, s->computed + rows)) {
            ReleasePages(*s);
            return;
        }
        waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(best));
        running_.push_back(s);
        s->running = true;
        if (!s->started) stats_.cache_asked += static_cast<int64_t>(s->tokens.size());
        s->started = true;
        CountFound(*s, s->computed);
        Append(*s, rows, 0, step, planned);
    }
}

bool Scheduler::Plan(StepData& step, std::vector<PlannedRows>& planned) {
    ++plan_;
    step.Clear();
    planned.clear();
    PlanDecodes(step, planned);
    PlanPrefills(step, planned);
    Admit(step, planned);
    // Prompts that hold pages can be in each other's way: then the first goes on at the cost of the
    // last.
    const auto first = std::ranges::find_if(
        running_, [](const Sequence* s) { return s->pending() > 0 && !s->in_flight; });
    if (planned.empty() && first != running_.end()) {
        Sequence* s = *first;
        const int64_t rows = PromptRows(*s, step);
        if (Grow(*s, s->computed + rows)) Append(*s, rows, 0, step, planned);
    }
    if (planned.empty()) --step.number;
    return !planned.empty();
}

// So many more rows have KV. Pages that are whole now are known to all.
void Scheduler::Advance(Sequence& s, int64_t rows) {
    const int64_t before = s.computed / options_.page_tokens;
    s.computed += rows;
    const int64_t after = s.computed / options_.page_tokens;
    if (after == before || !options_.prefix_cache || !s.cached) return;
    cache_.Insert(s.space(), s.tokens, std::span(s.pages).first(static_cast<size_t>(after)));
}

void Scheduler::Commit(std::span<const PlannedRows> planned) {
    for (const PlannedRows& plan : planned) {
        Sequence& s = *plan.sequence;
        if (s.copy.tokens > 0) pool_.LetGo(s.copy.page);
        s.copy = {};
        const int64_t rows = plan.rows - plan.drafted;
        Advance(s, rows);
        // The end of a prompt: others may come with the same beginning while this one speaks.
        if (plan.output >= 0 && rows > 1) KeepTail(s);
    }
}

void Scheduler::Keep(Sequence& s) {
    WEFT_CHECK(s.computed < static_cast<int64_t>(s.tokens.size()));
    Advance(s, 1);
    served_[s.key] += 1 / std::max(s.weight, 1e-6);
}

void Scheduler::EndDraft(Sequence& s) {
    s.draft.clear();
    while (static_cast<int64_t>(s.pages.size()) > PagesFor(s.computed + 1)) {
        pool_.LetGo(s.pages.back());
        s.pages.pop_back();
    }
}

void Scheduler::CommitInFlight(std::span<const PlannedRows> planned) {
    Commit(planned);
    for (const PlannedRows& plan : planned) plan.sequence->in_flight = plan.output >= 0;
}

void Scheduler::Forget() {
    for (Sequence* s : running_) {
        ReleasePages(*s);
        s->in_flight = s->running = false;
    }
    cache_.Clear();
    waiting_.insert(waiting_.begin(), running_.begin(), running_.end());
    for (Sequence* s : running_) ++s->preempted;
    running_.clear();
}

ScheduleStats Scheduler::stats() const {
    ScheduleStats stats = stats_;
    stats.running = static_cast<int64_t>(running_.size());
    stats.waiting = static_cast<int64_t>(waiting_.size());
    stats.pages = pool_.size();
    stats.free_pages = pool_.free();
    stats.idle_pages = pool_.idle();
    return stats;
}

}  // namespace weft::engine
