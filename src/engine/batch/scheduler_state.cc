// Slots of recurrent state: their owners, and the states that a step stores. See scheduler.h.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/batch/scheduler.h"

namespace weft::engine {

// Slots without a running sequence are idle, or become idle when the steps that use them are
// committed, so a waiting sequence gets one in the end.
bool Scheduler::TakeOwnSlot(Sequence& s) {
    if (s.slot >= 0) return true;
    if (slots_.free() == 0 && !cache_.EvictState()) return false;
    s.slot = slots_.Take();
    return true;
}

// Takes a slot for a state that the prefix cache will keep; -1: none. Drafts use the remaining
// ones.
int32_t Scheduler::TakeBorderSlot() {
    if (cache_.states() >= options_.kept_states && !cache_.EvictState()) return -1;
    return slots_.free() > 0 ? slots_.Take() : -1;
}

void Scheduler::ReleaseSlots(Sequence& s) {
    for (int32_t* slot : {&s.slot, &s.state_from}) {
        if (*slot >= 0) slots_.Release(std::exchange(*slot, -1));
    }
    for (const Sequence::Border& border : s.borders) slots_.Release(border.slot);
    for (const int32_t slot : s.draft_slots) slots_.Release(slot);
    s.borders.clear();
    s.draft_slots.clear();
    s.last_border = 0;
}

// As FindPrefix: whole pages up to the last known state.
void Scheduler::FindState(Sequence& s, int64_t most) {
    const int64_t had = s.computed / options_.page_tokens;
    s.parts_at = cache_.KnownPages(s.space(), s.tokens, most) * options_.page_tokens;
    found_.clear();
    const int32_t state = cache_.ExtendToState(s.space(), s.tokens, had, most, found_);
    if (state < 0) return;
    while (static_cast<int64_t>(s.pages.size()) > had) {
        pool_.Release(s.pages.back());
        s.pages.pop_back();
    }
    s.pages.insert(s.pages.end(), found_.begin(), found_.end());
    if (s.state_from >= 0) slots_.Release(s.state_from);
    s.state_from = state;
    s.computed = static_cast<int64_t>(s.pages.size()) * options_.page_tokens;
}

// Takes up to `most` slots for drafts; the sequence owns them from now on. Returns their number.
int64_t Scheduler::SlotsForDraft(Sequence& s, int64_t most) {
    while (static_cast<int64_t>(s.draft_slots.size()) < most && slots_.free() > 0) {
        s.draft_slots.push_back(slots_.Take());
    }
    return std::min(most, static_cast<int64_t>(s.draft_slots.size()));
}

// first_row: the sequence's first row in the step.
void Scheduler::PlanState(Sequence& s, int64_t rows, int64_t drafted, int32_t first_row,
                          StepData::Sequence& of_step) {
    WEFT_CHECK(s.slot >= 0);
    // Borders of a step that was planned and did not run.
    for (const Sequence::Border& border : std::exchange(s.borders, {})) slots_.Release(border.slot);
    of_step.state_from = s.state_from >= 0 ? s.state_from : s.computed > 0 ? s.slot : -1;
    of_step.state_to = s.slot;
    while (std::cmp_greater(s.draft_slots.size(), drafted)) {
        slots_.Release(s.draft_slots.back());
        s.draft_slots.pop_back();
    }
    s.drafted_from = s.computed + rows;
    auto row = first_row + static_cast<int32_t>(rows) - 1;
    for (const int32_t slot : s.draft_slots) of_step.state_writes.push_back({row++, slot});
    if (drafted == 0) PlanBorders(s, rows, first_row, of_step);
}

// Chooses the rows of the step after which the prefix cache keeps the state.
void Scheduler::PlanBorders(Sequence& s, int64_t rows, int32_t first_row,
                            StepData::Sequence& of_step) {
    if (!options_.prefix_cache || !s.cached || options_.kept_states == 0) return;
    const int64_t page = options_.page_tokens, size = static_cast<int64_t>(s.tokens.size());
    const bool says = s.pending() == 1;
    // A repeated prompt is looked up without its last token (FindPrefix).
    int64_t borders[] = {says ? 0 : s.parts_at, says ? size : (size - 1) / page * page};
    std::ranges::sort(borders);
    for (const int64_t border : borders) {
        const bool here = border > s.computed && border <= s.computed + rows && border % page == 0;
        if (!here || (!s.borders.empty() && s.borders.back().tokens == border)) continue;
        const int32_t slot = TakeBorderSlot();
        if (slot < 0) return;
        s.borders.push_back({border, slot});
        of_step.state_writes.push_back(
            {first_row + static_cast<int32_t>(border - s.computed) - 1, slot});
    }
}

// The cache keeps only the last border of an answer.
void Scheduler::CommitState(Sequence& s) {
    if (s.state_from >= 0) slots_.Release(std::exchange(s.state_from, -1));
    const auto first = [&](int64_t tokens) {
        return std::span<const int32_t>(s.tokens).first(static_cast<size_t>(tokens));
    };
    for (const auto& [tokens, slot] : std::exchange(s.borders, {})) {
        const bool said = tokens == static_cast<int64_t>(s.tokens.size());
        if (said && s.last_border > 0) cache_.RemoveState(s.space(), first(s.last_border));
        if (said) s.last_border = tokens;
        cache_.InsertState(s.space(), first(tokens), slot);
        if (!said) SaveState(s, tokens, slot);
        slots_.Release(slot);
    }
}

// The state after the last accepted draft becomes the sequence's own. It is in the slot of its row,
// unless all drafts were accepted.
void Scheduler::KeepDraftState(Sequence& s) {
    if (s.draft_slots.empty()) return;
    const auto kept = static_cast<size_t>(s.computed - s.drafted_from);
    WEFT_CHECK(kept <= s.draft_slots.size());
    if (kept < s.draft_slots.size()) std::swap(s.slot, s.draft_slots[kept]);
    for (const int32_t slot : std::exchange(s.draft_slots, {})) slots_.Release(slot);
}

}  // namespace weft::engine
