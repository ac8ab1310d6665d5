#include "engine/batch/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace weft::engine {

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
    ReleasePages(*sequence);
    std::erase(running_, sequence);
    std::erase(waiting_, sequence);
    const auto same_key = [&](const Sequence* other) { return other->key == sequence->key; };
    if (std::ranges::none_of(running_, same_key) && std::ranges::none_of(waiting_, same_key)) {
        served_.erase(sequence->key);
    }
}

void Scheduler::ReleasePages(Sequence& sequence) {
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

// Pages for the first `tokens` tokens, from what is free or idle; false: there are not enough.
bool Scheduler::Reserve(Sequence& sequence, int64_t tokens) {
    const int64_t more = PagesFor(tokens) - static_cast<int64_t>(sequence.pages.size());
    if (more <= 0) return true;
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

// What the cache knows of the tokens that come next. The last token is always computed: its logits
// are wanted.
// Returns how many there are.
int64_t Scheduler::FindPrefix(Sequence& s) {
    if (!options_.prefix_cache || !s.cached) return 0;
    const auto whole = static_cast<int64_t>(s.pages.size()) * options_.page_tokens;
    if (s.computed != whole) return 0;
    const int64_t most = static_cast<int64_t>(s.tokens.size()) - 1;
    const int64_t found = cache_.Extend(s.tokens, most, s.pages) * options_.page_tokens;
    s.computed += found;
    return found;
}

void Scheduler::CountFound(Sequence& s, int64_t found) {
    if (s.preempted > 0) return;
    s.from_cache += found;
    stats_.cache_hit += found;
}

void Scheduler::Append(Sequence& s, int64_t rows, StepData& step,
                       std::vector<PlannedRows>& planned) {
    PlannedRows plan{&s, static_cast<int32_t>(rows), -1};
    s.plan = plan_;
    StepData::Sequence of_step;
    of_step.pages.assign(s.pages.begin(), s.pages.begin() + PagesFor(s.computed + rows));
    step.Append(
        std::span(s.tokens).subspan(static_cast<size_t>(s.computed), static_cast<size_t>(rows)),
        s.computed, std::move(of_step));
    if (rows == s.pending()) {
        plan.output = static_cast<int32_t>(step.output_rows.size());
        step.output_rows.push_back(static_cast<int32_t>(step.tokens.size()) - 1);
    }
    planned.push_back(plan);
    served_[s.key] += static_cast<double>(rows) / std::max(s.weight, 1e-6);
}

// A sequence of which one token is left to compute. Those let in first go first, and push out those
// let in last. (Preempt changes running_.)
void Scheduler::PlanDecodes(StepData& step, std::vector<PlannedRows>& planned) {
    const std::vector<Sequence*> order = running_;
    const int64_t saying =
        std::ranges::count_if(order, [](const Sequence* s) { return s->pending() <= 1; });
    const int64_t most = (saying + steps_at_once_ - 1) / steps_at_once_;
    for (Sequence* s : order) {
        if (static_cast<int64_t>(planned.size()) >= most) return;
        if (s->pending() != 1 || !s->running) continue;
        if (!Grow(*s, s->computed + 1)) {
            Preempt(s);
            continue;
        }
        Append(*s, 1, step, planned);
    }
}

void Scheduler::PlanPrefills(StepData& step, std::vector<PlannedRows>& planned) {
    const std::vector<Sequence*> order = running_;
    for (Sequence* s : order) {
        if (Left(step) <= 0) return;
        if (s->pending() <= 1 || !s->running) continue;
        CountFound(*s, FindPrefix(*s));
        const int64_t rows = std::min(s->pending(), Left(step));
        // Rows of this step are planned already: nobody in it may be pushed out any more.
        if (Reserve(*s, s->computed + rows)) Append(*s, rows, step, planned);
    }
}

void Scheduler::Admit(StepData& step, std::vector<PlannedRows>& planned) {
    while (!waiting_.empty() && Left(step) > 0 &&
           static_cast<int64_t>(running_.size()) < options_.max_seqs) {
        const size_t best = BestWaiting();
        Sequence* s = waiting_[best];
        const int64_t found = FindPrefix(*s);
        // The whole of it must fit now, and a token after it, or it would be pushed out again.
        const int64_t whole = PagesFor(static_cast<int64_t>(s->tokens.size()) + 1) -
                              static_cast<int64_t>(s->pages.size());
        const int64_t rows = std::min(s->pending(), Left(step));
        if (pool_.free() + pool_.idle() < whole || !Reserve(*s, s->computed + rows)) {
            ReleasePages(*s);
            return;
        }
        waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(best));
        running_.push_back(s);
        s->running = true;
        if (!s->started) stats_.cache_asked += static_cast<int64_t>(s->tokens.size());
        s->started = true;
        CountFound(*s, found);
        Append(*s, rows, step, planned);
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
        const int64_t rows = std::min(s->pending(), Left(step));
        if (Grow(*s, s->computed + rows)) Append(*s, rows, step, planned);
    }
    if (planned.empty()) --step.number;
    return !planned.empty();
}

void Scheduler::Commit(std::span<const PlannedRows> planned) {
    for (const PlannedRows& plan : planned) {
        Sequence& s = *plan.sequence;
        const int64_t before = s.computed / options_.page_tokens;
        s.computed += plan.rows;
        const int64_t after = s.computed / options_.page_tokens;
        if (after == before || !options_.prefix_cache || !s.cached) continue;
        cache_.Insert(s.tokens, std::span(s.pages).first(static_cast<size_t>(after)));
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
