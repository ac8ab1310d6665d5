#include "grammar/assembly.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <map>

namespace weft::grammar {

size_t GrammarAssembly::Hash::operator()(const Set& set) const {
    uint64_t hash = set.size();
    for (const uint32_t member : set) hash = (hash ^ member) * 0x9E3779B97F4A7C15 + (hash >> 29);
    return static_cast<size_t>(hash ^ (hash >> 32));
}

GrammarAssembly::GrammarAssembly(const Nfa& nfa, uint64_t limit_steps)
    : nfa_(nfa),
      limit_steps_(limit_steps),
      states_(1),
      start_of_(nfa.start.size(), 0),
      stamp_(nfa.first.size(), 0),
      wanted_(nfa.start.size(), false) {}

GrammarAssembly::Set GrammarAssembly::Closure(const Set& from) {
    ++round_;
    Set open, closure;
    const auto visit = [&](uint32_t state) {
        if (stamp_[state] == round_ || !nfa_.productive[state]) return;
        stamp_[state] = round_;
        open.push_back(state);
    };
    for (const uint32_t state : from) visit(state);
    while (!open.empty()) {
        const uint32_t state = open.back();
        open.pop_back();
        bool matters = state == nfa_.end[nfa_.rule[state]];
        for (uint32_t at = nfa_.first[state]; at != Nfa::kNone; at = nfa_.edges[at].next) {
            const Nfa::Edge& edge = nfa_.edges[at];
            ++steps_;
            switch (edge.kind) {
                case Nfa::Kind::kEmpty: visit(edge.to); break;
                case Nfa::Kind::kBytes: matters = true; break;
                case Nfa::Kind::kCall:
                    matters = true;
                    if (nfa_.nullable[edge.rule]) visit(edge.to);
                    break;
            }
        }
        if (matters) closure.push_back(state);
    }
    steps_ += closure.size() * (1 + static_cast<size_t>(std::bit_width(closure.size())) / 6);
    std::sort(closure.begin(), closure.end());
    return closure;
}

uint32_t GrammarAssembly::StateOf(Set set) {
    const auto [known, added] = known_.try_emplace(std::move(set), 0);
    if (added) {
        known->second = static_cast<uint32_t>(states_.size());
        states_.emplace_back();
        members_.push_back(known->first);
    }
    return known->second;
}

GrammarAssembly::Set GrammarAssembly::StatesOf(const Set& set) {
    if (set.empty()) return {};
    if (deterministic_) return {StateOf(set)};
    Set states;
    for (const uint32_t member : set) states.push_back(StateOf({member}));
    return states;
}

void GrammarAssembly::FillCalls(uint32_t state, const Set& members) {
    std::vector<std::pair<uint32_t, uint32_t>> calls;  // rule, Nfa state after the call
    for (const uint32_t member : members) {
        for (uint32_t at = nfa_.first[member]; at != Nfa::kNone; at = nfa_.edges[at].next) {
            const Nfa::Edge& edge = nfa_.edges[at];
            if (edge.kind != Nfa::Kind::kCall || !nfa_.productive[edge.to]) continue;
            if (!nfa_.productive[nfa_.start[edge.rule]]) continue;
            calls.emplace_back(edge.rule, edge.to);
            if (wanted_[edge.rule]) continue;
            wanted_[edge.rule] = true;
            open_rules_.push_back(edge.rule);
        }
    }
    std::sort(calls.begin(), calls.end());
    for (size_t begin = 0; begin < calls.size() && !TooMuch();) {
        Set behind;
        size_t end = begin;
        for (; end < calls.size() && calls[end].first == calls[begin].first; ++end) {
            behind.push_back(calls[end].second);
        }
        for (const uint32_t to : StatesOf(Closure(behind))) {
            states_[state].calls.push_back({calls[begin].first, to});
        }
        begin = end;
    }
}

void GrammarAssembly::Fill(uint32_t state) {
    const Set members = members_[state - rule_begin_];
    std::vector<Nfa::Edge> edges;
    std::vector<size_t> borders;  // byte values at which an edge begins or has ended
    for (const uint32_t member : members) {
        if (member == nfa_.end[nfa_.rule[member]]) states_[state].final = true;
        for (uint32_t at = nfa_.first[member]; at != Nfa::kNone; at = nfa_.edges[at].next) {
            const Nfa::Edge& edge = nfa_.edges[at];
            if (edge.kind != Nfa::Kind::kBytes || !nfa_.productive[edge.to]) continue;
            edges.push_back(edge);
            borders.insert(borders.end(), {edge.bytes.low, edge.bytes.high + size_t{1}});
        }
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    Set before, to, target;
    for (size_t i = 0; i + 1 < borders.size() && !TooMuch(); ++i) {
        target.clear();
        for (const Nfa::Edge& edge : edges) {
            const bool covers = edge.bytes.low <= borders[i] && borders[i] <= edge.bytes.high;
            if (covers) target.push_back(edge.to);
        }
        steps_ += edges.size();
        if (target.empty()) continue;
        std::sort(target.begin(), target.end());
        target.erase(std::unique(target.begin(), target.end()), target.end());
        if (target != before) to = StatesOf(Closure(target));
        before = target;
        steps_ += to.size() + target.size();
        const ByteRange range = {static_cast<uint8_t>(borders[i]),
                                 static_cast<uint8_t>(borders[i + 1] - 1)};
        states_[state].bytes.push_back({range, to});
    }
    if (!TooMuch()) FillCalls(state, members);
}

bool GrammarAssembly::AddRule(uint32_t rule, bool deterministic) {
    known_.clear();
    members_.clear();
    rule_begin_ = states_.size();
    deterministic_ = deterministic;
    const Set set = Closure({nfa_.start[rule]});
    // The start is one state even if the rest is not deterministic.
    start_of_[rule] = StateOf(set);
    for (size_t state = rule_begin_; state < states_.size(); ++state) {
        Fill(static_cast<uint32_t>(state));
        if (TooMuch()) return false;
    }
    return true;
}

// Returns false if determinization exceeds the rule's allowance and the remaining shared budget.
bool GrammarAssembly::AddDeterministic(uint32_t rule, size_t size) {
    const size_t begin = states_.size();
    const uint64_t first_step = steps_;
    const size_t own_states = 256 + size;
    const uint64_t own_steps = 200'000 + 300 * size;
    most_states_ = std::min(kMostStates, begin + own_states + spare_states_);
    most_steps_ = std::min(kMostSteps + kSpareSteps, first_step + own_steps + spare_steps_);
    const bool done = AddRule(rule, true);
    const uint64_t steps = steps_ - first_step;
    if (steps > own_steps) spare_steps_ -= std::min(spare_steps_, steps - own_steps);
    if (!done) {
        states_.resize(begin);
        return false;
    }
    const size_t states = states_.size() - begin;
    if (states > own_states) spare_states_ -= std::min(spare_states_, states - own_states);
    return true;
}

Result<GrammarPtr> GrammarAssembly::Run(uint32_t root) {
    std::vector<size_t> sizes(nfa_.start.size(), 0);
    for (const uint32_t rule : nfa_.rule) ++sizes[rule];
    wanted_[root] = true;
    open_rules_.push_back(root);
    while (!open_rules_.empty()) {
        const uint32_t rule = open_rules_.back();
        open_rules_.pop_back();
        if (AddDeterministic(rule, sizes[rule])) continue;
        most_states_ = kMostStates;
        most_steps_ = kMostSteps + kSpareSteps;
        if (steps_ <= limit_steps_ && AddRule(rule, false)) continue;
        if (steps_ > limit_steps_) {
            return MakeError(ErrorCode::kCancelled,
                             "grammar: not compiled within {} steps; deferred", limit_steps_);
        }
        return MakeError(ErrorCode::kUsage,
                         "grammar: too large: determinization exceeds {} states or {} steps; use "
                         "smaller repetitions",
                         kMostStates, kMostSteps + kSpareSteps);
    }
    return Tables(root);
}

void GrammarAssembly::FillClasses(Grammar& grammar) const {
    std::bitset<257> begins;
    begins[0] = true;
    for (const State& state : states_) {
        for (const Bytes& bytes : state.bytes) {
            begins[bytes.range.low] = true;
            begins[bytes.range.high + size_t{1}] = true;
        }
    }
    size_t count = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
        if (begins[byte]) ++count;
        grammar.class_of_[byte] = static_cast<uint8_t>(count - 1);
    }
    grammar.num_classes_ = count;
}

void GrammarAssembly::FillRow(const State& state, Grammar& grammar) const {
    const size_t row = grammar.table_.size();
    grammar.table_.resize(row + grammar.num_classes_, 0);
    for (const Bytes& bytes : state.bytes) {
        uint32_t entry = bytes.to[0];
        if (bytes.to.size() > 1) {
            entry = Grammar::kList + static_cast<uint32_t>(grammar.lists_.size());
            grammar.lists_.push_back(static_cast<uint32_t>(bytes.to.size()));
            grammar.lists_.insert(grammar.lists_.end(), bytes.to.begin(), bytes.to.end());
        }
        const size_t last = grammar.class_of_[bytes.range.high];
        for (size_t at = grammar.class_of_[bytes.range.low]; at <= last; ++at) {
            grammar.table_[row + at] = entry;
        }
    }
}

void GrammarAssembly::FillCallTable(Grammar& grammar) const {
    for (const State& state : states_) {
        grammar.first_call_.push_back(static_cast<uint32_t>(grammar.calls_.size()));
        for (const Call& call : state.calls) {
            const State& behind = states_[call.to];
            const bool last = behind.final && behind.bytes.empty() && behind.calls.empty();
            grammar.calls_.push_back({start_of_[call.rule], last ? 0 : call.to});
        }
        const int flags = (state.final ? Grammar::kFinal : 0) |
                          (state.bytes.empty() ? 0 : Grammar::kBytes) |
                          (state.calls.empty() ? 0 : Grammar::kCalls);
        grammar.flags_.push_back(static_cast<uint8_t>(flags));
    }
    grammar.first_call_.push_back(static_cast<uint32_t>(grammar.calls_.size()));
}

// For each plain state: finds the plain successor reached by most bytes, with these bytes, and then
// how often such a step can be repeated with the same bytes.
void GrammarAssembly::FillRuns(Grammar& grammar) const {
    constexpr size_t kFewBytes = 32;
    std::map<ByteSet, uint32_t> known;
    std::vector<uint32_t> next(states_.size(), 0), counts(states_.size(), 0);
    grammar.runs_.assign(states_.size(), {});
    for (uint32_t state = 1; state < states_.size(); ++state) {
        if (!grammar.IsPlain(state)) continue;
        for (const Bytes& bytes : states_[state].bytes) {
            const uint32_t to = bytes.to[0];
            if (bytes.to.size() > 1 || !grammar.IsPlain(to)) continue;
            counts[to] += bytes.range.high - bytes.range.low + 1U;
            if (next[state] == 0 || counts[to] > counts[next[state]]) next[state] = to;
        }
        const bool few = next[state] == 0 || counts[next[state]] < kFewBytes;
        ByteSet set;
        for (const Bytes& bytes : states_[state].bytes) {
            for (const uint32_t to : bytes.to) counts[to] = 0;
            if (few || bytes.to.size() > 1 || bytes.to[0] != next[state]) continue;
            for (size_t byte = bytes.range.low; byte <= bytes.range.high; ++byte) set.Add(byte);
        }
        if (few) continue;
        const auto [entry, added] = known.try_emplace(set, grammar.run_sets_.size());
        if (added) grammar.run_sets_.push_back(set);
        grammar.runs_[state] = {entry->second, 1};
    }
    for (uint32_t state = 1; state < states_.size(); ++state) {
        Grammar::Run& run = grammar.runs_[state];
        if (run.length == 0) continue;
        for (uint32_t at = next[state]; run.length < Grammar::kLongRun; at = next[at]) {
            if (grammar.runs_[at].length == 0 || grammar.runs_[at].set != run.set) break;
            ++run.length;
        }
    }
}

Result<GrammarPtr> GrammarAssembly::Tables(uint32_t root) {
    std::shared_ptr<Grammar> grammar(new Grammar);
    FillClasses(*grammar);
    const size_t table_bytes = states_.size() * grammar->num_classes_ * sizeof(uint32_t);
    size_t listed = 0;
    for (const State& state : states_) {
        for (const Bytes& bytes : state.bytes) listed += bytes.to.size() + 1;
    }
    if (table_bytes + listed * sizeof(uint32_t) > kMostTableBytes) {
        return MakeError(ErrorCode::kUsage,
                         "grammar: too large: its {} states take {} MB; the limit is {} MB",
                         states_.size(), table_bytes >> 20, kMostTableBytes >> 20);
    }
    grammar->table_.reserve(states_.size() * grammar->num_classes_);
    for (const State& state : states_) FillRow(state, *grammar);
    FillCallTable(*grammar);
    FillRuns(*grammar);
    grammar->start_ = start_of_[root];
    return GrammarPtr(std::move(grammar));
}

size_t Grammar::size_bytes() const {
    return (table_.size() + lists_.size() + first_call_.size()) * sizeof(uint32_t) +
           calls_.size() * sizeof(Call) + flags_.size() + runs_.size() * sizeof(Run);
}

}  // namespace weft::grammar
