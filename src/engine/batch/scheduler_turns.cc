// Chooses the sequence to admit next and the one to preempt: fair shares of slots, pages and rows
// between keys, and between the requests of a key. See scheduler.h.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "engine/batch/scheduler.h"

namespace weft::engine {

// A sequence for which another was preempted comes first. `running` and later fields decide within
// a key, earlier fields between keys.
bool Scheduler::Sooner(const Sequence& a, const Sequence& b) const {
    const auto place = [&](const Sequence& s) {
        const KeyUse& key = *s.of_key;
        return std::tuple(s.promised != plan_, -int64_t{s.priority},
                          static_cast<double>(key.running) / key.weight, key.served, key.since,
                          s.of_request->running, s.preempted == 0, s.id);
    };
    return place(a) < place(b);
}

// The next waiting sequence, by turns_; null: none.
Sequence* Scheduler::NextWaiting() const {
    return turns_.empty() ? nullptr : turns_.front()->next;
}

void Scheduler::Count(const Sequence& s, int64_t running) {
    s.of_key->running += running;
    s.of_request->running += running;
}

bool Scheduler::AtLimit(const Sequence& s) const {
    return s.limit > 0 && s.of_key->running >= s.limit;
}

// Pages that a sequence lacks for all of its tokens and one more.
int64_t Scheduler::Owed(const Sequence& s) const {
    const int64_t all = PagesFor(static_cast<int64_t>(s.tokens.size()) + 1);
    const int64_t most = std::min(all, pool_.size());
    return std::max<int64_t>(0, most - static_cast<int64_t>(s.pages.size()));
}

// Free and idle pages, minus the pages that running sequences will need.
int64_t Scheduler::Room() const {
    int64_t room = pool_.free() + pool_.idle();
    for (const Sequence* s : running_) room -= Owed(*s);
    return room;
}

// Sums the pages of keys and requests. (A shared page counts for each of its sequences.)
void Scheduler::SumPages() {
    for (const Sequence* s : running_) s->of_key->pages = s->of_request->pages = 0;
    for (const Sequence* s : running_) {
        s->of_key->pages += static_cast<int64_t>(s->pages.size());
        s->of_request->pages += static_cast<int64_t>(s->pages.size());
    }
}

namespace {

// Pages by weight.
double PagesOf(const KeyUse& key) {
    return key.running == 0 ? 0 : static_cast<double>(key.pages) / key.weight;
}

// Whether `b`, rather than `a`, is preempted: the sequence of lower priority, then of the key and
// the request with the larger `use`, then the one that was admitted later, which is `b`.
template <typename Use>
bool Rather(const Sequence& a, const Sequence& b, Use use) {
    const auto place = [&](const Sequence& s) {
        return std::tuple(-int64_t{s.priority}, use(*s.of_key) / s.of_key->weight,
                          use(*s.of_request));
    };
    return place(b) >= place(a);
}

double RunningIn(const auto& use) {
    return static_cast<double>(use.running);
}
double PagesIn(const auto& use) {
    return static_cast<double>(use.pages);
}

}  // namespace

// Whether `other` may be preempted for a page of the running sequence `growing`. after: `other` was
// admitted after `growing`. The only sequence of another key is spared until it has had its turn.
bool Scheduler::GivesPages(const Sequence& other, const Sequence& growing, bool after) const {
    if (other.plan == plan_ || other.in_flight) return false;  // it has rows in this step
    if (other.priority != growing.priority) return other.priority < growing.priority;
    if (other.of_key == growing.of_key) {
        const bool more = PagesIn(*other.of_request) > PagesIn(*growing.of_request);
        return after || (more && other.of_request->running > 1);
    }
    const double mine = PagesOf(*growing.of_key), theirs = PagesOf(*other.of_key);
    if (theirs < mine || (theirs == mine && !after)) return false;
    return other.of_key->running > 1 || other.turn >= kTurn;
}

// The sequence to preempt for a page of `growing`.
Sequence* Scheduler::Victim(const Sequence& growing) {
    SumPages();
    Sequence* victim = nullptr;
    bool after = false;
    for (Sequence* other : running_) {
        if (other == &growing) {
            after = true;
            continue;
        }
        if (!GivesPages(*other, growing, after)) continue;
        if (victim == nullptr ||
            Rather(*victim, *other, [](const auto& use) { return PagesIn(use); })) {
            victim = other;
        }
    }
    return victim;
}

// Whether `running` may be preempted because `waiting` needs its slot or its pages. After that, the
// key of `waiting` (within one key: its request) must hold no more than the key (request) of
// `running`. A sequence that has had its turn may always be preempted for a key without a running
// sequence.
bool Scheduler::GivesWay(const Sequence& running, const Sequence& waiting, bool slot) const {
    if (running.in_flight) return false;
    if (running.priority != waiting.priority) return running.priority < waiting.priority;
    if (running.of_request == waiting.of_request) return false;
    const KeyUse &theirs = *running.of_key, &mine = *waiting.of_key;
    const bool keys = &theirs != &mine;
    const int64_t they_run = keys ? theirs.running : running.of_request->running;
    const int64_t i_run = keys ? mine.running : waiting.of_request->running;
    if (keys && i_run == 0 && running.turn >= kTurn) return true;
    if (they_run < 2) return false;
    const double their_weight = keys ? theirs.weight : 1, my_weight = keys ? mine.weight : 1;
    if (slot) {
        return i_run == 0 || static_cast<double>(they_run - 1) / their_weight >=
                                 static_cast<double>(i_run + 1) / my_weight;
    }
    const int64_t held = keys ? theirs.pages : running.of_request->pages;
    const int64_t own = i_run == 0 ? 0 : keys ? mine.pages : waiting.of_request->pages;
    return static_cast<double>(held) / their_weight >
           static_cast<double>(own + waiting.wants) / my_weight;
}

// own: only sequences of the same key.
Sequence* Scheduler::VictimFor(const Sequence& waiting, bool slot, bool own) const {
    Sequence* victim = nullptr;
    for (Sequence* s : running_) {
        if (own && s->of_key != waiting.of_key) continue;
        if (std::ranges::find(victims_, s) != victims_.end()) continue;
        if (!GivesWay(*s, waiting, slot)) continue;
        const auto running = [](const auto& use) { return RunningIn(use); };
        const auto pages = [](const auto& use) { return PagesIn(use); };
        if (victim == nullptr ||
            (slot ? Rather(*victim, *s, running) : Rather(*victim, *s, pages))) {
            victim = s;
        }
    }
    return victim;
}

// Preempts as many sequences as the slot and the pages of `waiting` need. Returns false, and
// preempts no sequence, if that would not free enough. room: Room(). Keeps the sums of SumPages.
bool Scheduler::PreemptFor(const Sequence& waiting, bool slot, bool own, int64_t room) {
    victims_.clear();
    int64_t lacks = waiting.wants - room;
    const auto add_pages = [](const Sequence& s, int64_t sign) {
        s.of_key->pages += sign * std::ssize(s.pages);
        s.of_request->pages += sign * std::ssize(s.pages);
    };
    bool enough = true;
    while (enough && (slot || lacks > 0)) {
        Sequence* victim = VictimFor(waiting, slot, own);
        enough = victim != nullptr;
        if (!enough) break;
        slot = false;
        victims_.push_back(victim);
        Count(*victim, -1);
        add_pages(*victim, -1);
        lacks -= Owed(*victim) + std::ranges::count_if(victim->pages, [&](int32_t page) {
                     return pool_.holders(page) == 1;
                 });
    }
    for (const Sequence* victim : victims_) {
        Count(*victim, 1);
        if (!enough) add_pages(*victim, 1);
    }
    if (!enough) return false;
    for (Sequence* victim : victims_) Preempt(victim);
    return true;
}

// Stores the next waiting sequence of each key in turns_, in the order of admission.
void Scheduler::FindNextOfKeys() {
    turns_.clear();
    for (auto& [name, key] : keys_) key.next = nullptr;
    for (Sequence* s : waiting_) {
        KeyUse& key = *s->of_key;
        if (Delayed(*s)) continue;
        if (key.next == nullptr) turns_.push_back(&key);
        if (key.next == nullptr || Sooner(*s, *key.next)) key.next = s;
    }
    std::ranges::sort(turns_,
                      [&](const KeyUse* a, const KeyUse* b) { return Sooner(*a->next, *b->next); });
}

// Before a step is planned: preempts for the next waiting sequence of each key.
void Scheduler::MakeWay() {
    if (waiting_.empty() || running_.empty()) return;
    if (keys_.size() == 1 && keys_.begin()->second.requests.size() == 1) return;
    FindNextOfKeys();
    SumPages();
    int64_t room = Room();
    int64_t promised = 0;  // of the free slots
    for (const KeyUse* key : turns_) {
        const Sequence& next = *key->next;
        const bool own = AtLimit(next);
        const auto running = static_cast<int64_t>(running_.size());
        const bool slot = own || running + promised >= options_.max_seqs;
        if (slot || next.wants > room) {
            if (!PreemptFor(next, slot, own, room)) continue;
            room = Room();
            key->next->promised = plan_;
        }
        ++promised;
    }
}

// Whether a sequence may be admitted before `blocked`, which lacks pages: its key must then hold no
// more pages than the key of `blocked`, so many small sequences do not starve a large one. Needs
// the sums of SumPages.
bool Scheduler::MayPass(const Sequence& s, const Sequence& blocked) const {
    if (s.priority < blocked.priority) return false;
    const KeyUse &mine = *s.of_key, &theirs = *blocked.of_key;
    const int64_t more = PagesFor(static_cast<int64_t>(s.tokens.size()) + 1);
    return PagesOf(mine) + static_cast<double>(more) / mine.weight <= PagesOf(theirs);
}

// Adds a prompt to its key's demand in this step.
void Scheduler::Demand(const Sequence& s, int64_t left) {
    KeyUse& key = *s.of_key;
    if (std::exchange(key.demand_plan, plan_) != plan_) {
        key.demand = 0;
        key.priority = s.priority;
        sharing_.push_back(&key);
    }
    key.priority = std::max(key.priority, s.priority);
    int64_t rows = s.pending();
    if (s.scored()) {
        rows = RowsWithLogits(s, rows, key.score_rows - key.score_demand);
        key.score_demand += ScoresOf(s, rows);
    }
    key.demand = std::min(left, key.demand + rows);
}

// Gives each key its share of the remaining prompt rows: highest priority first, then by weight.
// Unneeded rows go to the others.
void Scheduler::ShareRows(int64_t left) {
    sharing_.clear();
    spare_rows_ = left;
    if (left <= 0 || keys_.size() == 1) return;
    for (const Sequence* s : running_) {
        if (s->pending() > 1) Demand(*s, left);
    }
    FindNextOfKeys();
    int64_t slots = options_.max_seqs - static_cast<int64_t>(running_.size());
    const int64_t room = Room();
    for (const KeyUse* key : turns_) {
        const Sequence& next = *key->next;
        if (AtLimit(next) || next.wants > room) continue;
        if (slots-- <= 0) break;
        Demand(next, left);
    }
    std::ranges::sort(sharing_, {}, [](const KeyUse* key) {
        return std::tuple(-int64_t{key->priority}, static_cast<double>(key->demand) / key->weight,
                          key->since);
    });
    for (size_t begin = 0, end = 0; begin < sharing_.size(); begin = end) {
        double weights = 0;
        const int priority = sharing_[begin]->priority;
        for (; end < sharing_.size() && sharing_[end]->priority == priority; ++end) {
            weights += sharing_[end]->weight;
        }
        for (size_t i = begin; i < end; ++i) {
            KeyUse& key = *sharing_[i];
            const double share = static_cast<double>(spare_rows_) * key.weight / weights;
            const auto whole = static_cast<int64_t>(std::ceil(share));
            key.rows = std::min({key.demand, whole, spare_rows_});
            spare_rows_ -= key.rows;
            weights -= key.weight;
        }
    }
}

}  // namespace weft::engine
