// Pages kept outside of the device's memory: the pages to save, and the ones to restore before a
// prompt is computed. See scheduler.h.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/batch/scheduler.h"

namespace weft::engine {
namespace {

// A sequence restores at most this many times its pages: other sequences may take restored pages
// before it is admitted.
constexpr int64_t kMostRestores = 2;
// When a sequence leaves, at most so many of its first pages are named: a message of 160 KB.
constexpr int64_t kMostUsed = 4096;
// How many waiting sequences beyond the free slots have their kept pages looked up before a plan.
// The others wait for a later plan.
constexpr int64_t kMostSeekers = 8;

}  // namespace

void Scheduler::KeepPages(std::optional<PageKeys> keys) {
    page_keys_ = keys;
    saves_.clear();
    for (Sequence* s : running_) s->page_keys.clear();
    for (Sequence* s : waiting_) s->page_keys.clear();
}

// Pages [begin, end) of the sequence were added to the prefix cache.
void Scheduler::SavePages(Sequence& s, int64_t begin, int64_t end) {
    if (!page_keys_) return;
    page_keys_->Extend(s.space(), s.tokens, end, s.page_keys);
    for (auto i = static_cast<size_t>(begin); std::cmp_less(i, end); ++i) {
        saves_.push_back({s.page_keys[i], s.pages[i], false});
    }
}

// When a sequence leaves: its pages were used, also those that the prefix cache had.
void Scheduler::SaveWhole(Sequence& s) {
    if (!options_.prefix_cache || !s.cached) return;
    const size_t begin = saves_.size();
    SavePages(s, 0, std::min(s.computed / options_.page_tokens, kMostUsed));
    for (size_t i = begin; i < saves_.size(); ++i) saves_[i].is_used = true;
}

// tokens: in whole pages.
void Scheduler::SaveState(Sequence& s, int64_t tokens, int32_t slot) {
    if (!page_keys_ || tokens == 0) return;
    const int64_t pages = tokens / options_.page_tokens;
    page_keys_->Extend(s.space(), s.tokens, pages, s.page_keys);
    saves_.push_back({s.page_keys[static_cast<size_t>(pages - 1)], slot, true});
}

// The last state of an answer, when it is over: states are large.
void Scheduler::SaveLastState(Sequence& s) {
    if (!page_keys_ || s.last_border == 0) return;
    const auto text = std::span<const int32_t>(s.tokens).first(static_cast<size_t>(s.last_border));
    const int32_t slot = cache_.StateAfter(s.space(), text);
    if (slot >= 0) SaveState(s, s.last_border, slot);
}

// ---- Slots --------------------------------------------------------------------------------------

std::vector<KeyedPage> Scheduler::KeysOf(const PrefixSpace& space, std::span<const int32_t> tokens,
                                         int64_t pages, bool state) const {
    std::vector<PageKey> keys;
    page_keys_->Extend(space, tokens, pages, keys);
    std::vector<KeyedPage> keyed;
    for (const PageKey& key : keys) keyed.push_back({key, 0, false});
    if (state && pages > 0) keyed.push_back({keys.back(), 0, true});
    return keyed;
}

std::vector<KeyedPage> Scheduler::HoldCached(const PrefixSpace& space,
                                             std::span<const int32_t> tokens) {
    std::vector<int32_t> pages;
    int32_t slot = -1;
    const auto most = static_cast<int64_t>(tokens.size());
    if (has_state()) {
        slot = cache_.ExtendToState(space, tokens, 0, most, pages);
    } else {
        cache_.Extend(space, tokens, 0, most, pages);
    }
    std::vector<KeyedPage> held = KeysOf(space, tokens, std::ssize(pages), slot >= 0);
    for (size_t i = 0; i < pages.size(); ++i) held[i].place = pages[i];
    if (slot >= 0) held.back().place = slot;
    if (!held.empty()) ++lent_;
    return held;
}

void Scheduler::Release(std::span<const KeyedPage> held) {
    if (!held.empty()) --lent_;
    for (const KeyedPage& page : held) (page.is_state ? slots_ : pool_).Release(page.place);
}

// ---- Restoring ----------------------------------------------------------------------------------

bool Scheduler::Seeks(const Sequence& s) const {
    return page_keys_ && options_.prefix_cache && s.cached && s.seeks && !s.in_flight;
}

// Whether a sequence has no rows in this plan because kept pages of it may be found.
bool Scheduler::Delayed(const Sequence& s) const {
    return Seeks(s) && s.seek_plan != plan_ && (!s.running || s.pending() > 1);
}

bool Scheduler::seeks() const {
    const auto delayed = [&](const Sequence* s) { return Delayed(*s); };
    return std::ranges::any_of(running_, delayed) || std::ranges::any_of(waiting_, delayed);
}

// The next sequence whose kept pages are to be found before the next plan. If the first waiting
// sequence of a key cannot be admitted, a plan considers no other one of the key (Admit).
Sequence* Scheduler::NextSeeker() const {
    const auto seeks = [&](const Sequence* s) {
        return Seeks(*s) && s->seek_plan != plan_ + 1 && (!s->running || s->pending() > 1) &&
               (s->running || s->of_key->full_plan != plan_ + 1);
    };
    const auto running = std::ranges::find_if(running_, seeks);
    if (running != running_.end()) return *running;
    const int64_t slots = options_.max_seqs - std::ssize(running_);
    if (seek_plan_ == plan_ + 1 && seek_tries_ >= slots + kMostSeekers) return nullptr;
    Sequence* next = nullptr;
    for (Sequence* s : waiting_) {
        if (seeks(s) && (next == nullptr || Sooner(*s, *next))) next = s;
    }
    return next;
}

// Number of first pages after which the prefix cache has a state, at most `most`.
int64_t Scheduler::StatePages(const Sequence& s, int64_t most) {
    std::vector<int32_t> pages;
    const int32_t slot =
        cache_.ExtendToState(s.space(), s.tokens, 0, most * options_.page_tokens, pages);
    for (const int32_t page : pages) pool_.Release(page);
    if (slot >= 0) slots_.Release(slot);
    return static_cast<int64_t>(pages.size());
}

// Number of first pages of the sequence with which it could begin, after pages are restored: at
// least `enough` more than the prefix cache has (known), or all. 0: restoring has no use.
int64_t Scheduler::PagesToFind(Sequence& s, const KeptPages& kept, int64_t known, int64_t enough) {
    const int64_t page = options_.page_tokens;
    int64_t most = std::min(static_cast<int64_t>(s.tokens.size()) - 1, s.score_from) / page;
    if (s.seek_most >= 0) most = std::min(most, s.seek_most);
    const int64_t used = s.computed / page;
    if (most <= used || s.restored > kMostRestores * most) return 0;
    known = std::min(known, most);
    page_keys_->Extend(s.space(), s.tokens, most, s.page_keys);
    const std::span<const PageKey> keys(s.page_keys);
    const auto more = has_state() ? most - known : std::min(most - known, enough);
    int64_t found =
        known + kept.Leading(keys.subspan(static_cast<size_t>(known), static_cast<size_t>(more)));
    if (!has_state()) return found > std::max(known, used) ? found : 0;
    const int64_t there = std::max(used, StatePages(s, most));
    while (found > there && !kept.HasState(keys[static_cast<size_t>(found - 1)])) --found;
    return found > there ? found : 0;
}

bool Scheduler::PlanRestoreOf(Sequence& s, const KeptPages& kept, int64_t most, RestorePlan& plan) {
    WEFT_CHECK(plan.owner == nullptr);
    ++stats_.kept_tries;
    plan.sequence = &s;
    plan.owner = this;
    ++lent_;
    const auto tokens = static_cast<int64_t>(s.tokens.size());
    cache_.Extend(s.space(), s.tokens, 0, std::min(tokens - 1, s.score_from), plan.path);
    const auto in_cache = static_cast<int64_t>(plan.path.size());
    const bool room = s.running || Owed(s) - in_cache <= Room();
    const int64_t found = room ? PagesToFind(s, kept, in_cache, most) : 0;
    const bool starts = room && s.restored == 0 && s.seek_most < 0;
    if (starts) stats_.kept_asked += tokens - in_cache * options_.page_tokens;
    while (found > 0 && std::cmp_greater(plan.path.size(), found)) {
        pool_.Release(plan.path.back());
        plan.path.pop_back();
    }
    const auto known = static_cast<int64_t>(plan.path.size());
    const int64_t count = std::clamp<int64_t>(found - known, 0, most);
    s.seeks = found > 0 && pool_.free() + pool_.idle() >= count;
    if (!room) {
        s.seeks = true;
        s.seek_plan = s.of_key->full_plan = plan_ + 1;
    } else if (s.seeks) {
        cache_.Evict(count);
        for (int64_t i = known; i < known + count; ++i) {
            plan.pages.push_back({s.page_keys[static_cast<size_t>(i)], pool_.Take(), false});
        }
        if (!has_state() || known + count < found) return true;
        const int32_t slot = TakeBorderSlot();
        plan.pages.push_back({s.page_keys[static_cast<size_t>(found - 1)], slot, true});
        if (slot >= 0) return true;
        plan.pages.pop_back();
        s.seeks = false;
    }
    plan.sequence = nullptr;
    EndRestore(plan, 0);
    return false;
}

bool Scheduler::PlanRestore(const KeptPages& kept, int64_t most_pages, RestorePlan& plan) {
    while (Sequence* s = NextSeeker()) {
        if (std::exchange(seek_plan_, plan_ + 1) != plan_ + 1) seek_tries_ = 0;
        if (!s->running) ++seek_tries_;
        if (PlanRestoreOf(*s, kept, most_pages, plan)) return true;
    }
    return false;
}

void Scheduler::EndRestore(RestorePlan& plan, int64_t count) {
    const auto known = static_cast<int64_t>(plan.path.size());
    int32_t slot = -1;
    for (size_t i = 0; i < plan.pages.size(); ++i) {
        const KeyedPage& page = plan.pages[i];
        if (page.is_state) {
            slot = page.place;
        } else if (std::cmp_less(i, count)) {
            plan.path.push_back(page.place);
        } else {
            pool_.Release(page.place);
        }
    }
    const auto pages = static_cast<int64_t>(plan.path.size());
    const bool all = count == static_cast<int64_t>(plan.pages.size());
    if (Sequence* s = plan.sequence) {
        const auto text = std::span<const int32_t>(s->tokens).first(
            static_cast<size_t>(pages * options_.page_tokens));
        if (pages > known) cache_.Insert(s->space(), text, plan.path);
        if (all && slot >= 0) cache_.InsertState(s->space(), text, slot);
        s->restored += pages - known;
        stats_.kept_hit += (pages - known) * options_.page_tokens;
        if (all && slot >= 0) s->seeks = false;
        if (!all) {
            // Once, an earlier state may do.
            const bool lacks_state = slot >= 0 && count + 1 == std::ssize(plan.pages);
            s->seeks = has_state() && s->seek_most < 0;
            s->seek_most = lacks_state ? pages - 1 : pages;
        }
    }
    if (slot >= 0) slots_.Release(slot);
    for (const int32_t page : plan.path) pool_.Release(page);
    --lent_;
    plan.sequence = nullptr;
    plan.path.clear();
    plan.pages.clear();
    plan.owner = nullptr;
}

RestorePlan::~RestorePlan() {
    sequence = nullptr;
    if (owner != nullptr) owner->EndRestore(*this, 0);
}

}  // namespace weft::engine
