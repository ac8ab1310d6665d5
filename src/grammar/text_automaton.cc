#include "grammar/text_automaton.h"

#include <algorithm>
#include <string>
#include <utility>

#include "grammar/json_text.h"

namespace weft::grammar {
namespace {

using TextState = TextAutomaton::State;
using TextEdge = TextAutomaton::Edge;

constexpr uint8_t kMostByte = 0xFF;

Error TooLarge() {
    return MakeError(ErrorCode::kUnsupported,
                     "its automaton would have more than {} states, or the grammar's automata "
                     "exceed the work limit",
                     TextAutomaton::kMostStates);
}

// Joins adjacent edges to the same state.
void AddEdge(std::vector<TextEdge>& edges, ByteRange bytes, uint32_t to) {
    if (!edges.empty() && edges.back().to == to && edges.back().bytes.high + 1 == bytes.low) {
        edges.back().bytes.high = bytes.high;
    } else {
        edges.push_back({bytes, to});
    }
}

// Numbers the result's states in the order of their discovery.
template <typename Key>
class Numbering {
  public:
    uint32_t Of(Key key) {
        const auto [at, added] = known_.try_emplace(std::move(key), keys_.size());
        if (added) keys_.push_back(&at->first);
        return at->second;
    }
    size_t size() const { return keys_.size(); }
    const Key& operator[](size_t at) const { return *keys_[at]; }

  private:
    std::map<Key, uint32_t> known_;
    std::vector<const Key*> keys_;
};

// Subset construction on one rule of an Nfa.
class Subsets {
  public:
    Subsets(const Nfa& nfa, uint32_t rule) : nfa_(nfa), end_(nfa.end[rule]) {
        if (nfa.productive[nfa.start[rule]]) numbers_.Of(Closure({nfa.start[rule]}));
    }

    Result<TextAutomaton> Run(TextBudget& budget) {
        std::vector<TextState> states;
        for (size_t at = 0; at < numbers_.size(); ++at) {
            if (numbers_.size() > TextAutomaton::kMostStates) return TooLarge();
            states.push_back(Made(numbers_[at], budget.steps));
            if (!budget.Spend(std::exchange(steps_, 0))) return TooLarge();
        }
        return TextAutomaton(std::move(states));
    }

  private:
    using Set = std::vector<uint32_t>;  // sorted states of the Nfa

    Set Closure(Set open) {
        Set set;
        std::vector<bool>& seen = seen_;
        seen.resize(nfa_.first.size());
        while (!open.empty()) {
            const uint32_t state = open.back();
            open.pop_back();
            if (seen[state] || !nfa_.productive[state]) continue;
            seen[state] = true;
            set.push_back(state);
            for (uint32_t at = nfa_.first[state]; at != Nfa::kNone; at = nfa_.edges[at].next) {
                ++steps_;
                if (nfa_.edges[at].kind == Nfa::Kind::kEmpty) open.push_back(nfa_.edges[at].to);
            }
        }
        for (const uint32_t state : set) seen[state] = false;
        // States with only empty edges do not distinguish sets.
        std::erase_if(set, [&](uint32_t state) { return state != end_ && !HasBytes(state); });
        std::ranges::sort(set);
        return set;
    }
    bool HasBytes(uint32_t state) const {
        for (uint32_t at = nfa_.first[state]; at != Nfa::kNone; at = nfa_.edges[at].next) {
            if (nfa_.edges[at].kind == Nfa::Kind::kBytes) return true;
        }
        return false;
    }

    // Incomplete if it takes more than `most_steps`.
    TextState Made(const Set& set, uint64_t most_steps) {
        std::vector<const Nfa::Edge*> edges;
        std::vector<uint32_t> cuts;  // byte values at which the set of edges may change
        for (const uint32_t state : set) {
            for (uint32_t at = nfa_.first[state]; at != Nfa::kNone; at = nfa_.edges[at].next) {
                const Nfa::Edge& edge = nfa_.edges[at];
                if (edge.kind != Nfa::Kind::kBytes || !nfa_.productive[edge.to]) continue;
                edges.push_back(&edge);
                cuts.push_back(edge.bytes.low);
                cuts.push_back(edge.bytes.high + 1U);
            }
        }
        std::ranges::sort(cuts);
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        TextState made{.final = std::ranges::binary_search(set, end_)};
        for (size_t i = 0; i + 1 < cuts.size() && steps_ < most_steps; ++i) {
            Set to;
            steps_ += edges.size();
            for (const Nfa::Edge* edge : edges) {
                if (edge->bytes.low <= cuts[i] && cuts[i] <= edge->bytes.high) {
                    to.push_back(edge->to);
                }
            }
            if (to.empty()) continue;
            const ByteRange bytes = {static_cast<uint8_t>(cuts[i]),
                                     static_cast<uint8_t>(cuts[i + 1] - 1)};
            AddEdge(made.edges, bytes, numbers_.Of(Closure(std::move(to))));
        }
        return made;
    }

    const Nfa& nfa_;
    const uint32_t end_;
    Numbering<Set> numbers_;
    std::vector<bool> seen_;
    uint64_t steps_ = 0;
};

// Converts an automaton to a graph with JSON string escapes.
class JsonSpelling {
  public:
    explicit JsonSpelling(ByteGraph& graph) : graph_(graph) {}

    void Add(uint32_t from, const TextEdge& edge) {
        if (from != from_) begun_.clear();
        from_ = from;
        uint32_t plain = edge.bytes.low;  // first byte not emitted yet
        const uint32_t last = edge.bytes.high;
        for (uint32_t byte = plain; byte <= last; ++byte) {
            const std::string spelt = JsonSpelt(static_cast<uint8_t>(byte));
            if (spelt.size() == 1) {
                if (byte >= 0x80) break;
                continue;
            }
            Plain(plain, byte, edge.to);
            plain = byte + 1;
            const auto end = static_cast<uint8_t>(spelt.back());
            graph_.edges.push_back({After(spelt.substr(0, spelt.size() - 1)), edge.to, {end, end}});
        }
        Plain(plain, last + 1, edge.to);
    }

  private:
    void Plain(uint32_t low, uint32_t end, uint32_t to) {
        if (low >= end) return;
        graph_.edges.push_back(
            {from_, to, {static_cast<uint8_t>(low), static_cast<uint8_t>(end - 1)}});
    }
    // The state after a prefix of an escape.
    uint32_t After(const std::string& begin) {
        if (begin.empty()) return from_;
        const auto known = begun_.find(begin);
        if (known != begun_.end()) return known->second;
        const uint32_t before = After(begin.substr(0, begin.size() - 1));
        const uint32_t state = graph_.states++;
        const auto byte = static_cast<uint8_t>(begin.back());
        graph_.edges.push_back({before, state, {byte, byte}});
        begun_.emplace(begin, state);
        return state;
    }

    ByteGraph& graph_;
    uint32_t from_ = UINT32_MAX;
    std::map<std::string, uint32_t> begun_;  // prefixes of escapes from from_
};

}  // namespace

Result<TextAutomaton> TextAutomaton::Make(const GrammarBuilder& builder, GrammarBuilder::Rule rule,
                                          TextBudget& budget) {
    if (budget.steps == 0) return TooLarge();
    const Result<Nfa> nfa = Nfa::Make(builder);
    // A rule that is too large is compiled up to the limit.
    if (!budget.Spend(nfa.ok() ? nfa->edges.size() : Nfa::kMostEdges)) return TooLarge();
    if (!nfa.ok()) return nfa.error();
    return Subsets(*nfa, rule).Run(budget);
}

Result<TextAutomaton> TextAutomaton::OfLengths(uint32_t least, uint32_t most,
                                               TextBudget& budget) const {
    if (NoneLonger(most)) most = GrammarBuilder::kNoLimit;
    const bool endless = most == GrammarBuilder::kNoLimit;
    const uint32_t last = endless ? least : most;
    if (last >= kMostStates || !budget.Spend(last)) return TooLarge();
    std::vector<State> states(size_t{last} + 1);
    for (uint32_t count = 0; count <= last; ++count) {
        const bool more = count < last || endless;
        const uint32_t next = std::min(count + 1, last);
        State& state = states[count];
        state.final = count >= least;
        if (more) AddEdge(state.edges, {0, 0x7F}, next);
        AddEdge(state.edges, {0x80, 0xBF}, count);  // the rest of the previous code point
        if (more) AddEdge(state.edges, {0xC0, kMostByte}, next);
    }
    return And(TextAutomaton(std::move(states)), budget);
}

// Computes the longest paths in topological order, which exists if the texts' length is bounded.
bool TextAutomaton::NoneLonger(uint32_t most) const {
    std::vector<uint32_t> before(states_.size()), longest(states_.size());
    for (const State& state : states_) {
        for (const Edge& edge : state.edges) ++before[edge.to];
    }
    std::vector<uint32_t> order;
    if (!states_.empty() && before[0] == 0) order.push_back(0);
    for (size_t at = 0; at < order.size(); ++at) {
        for (const auto& [bytes, to] : states_[order[at]].edges) {
            const bool inner = bytes.low >= 0x80 && bytes.high <= 0xBF;  // a continuation byte
            longest[to] = std::max(longest[to], longest[order[at]] + (inner ? 0 : 1));
            if (--before[to] == 0) order.push_back(to);
        }
    }
    return order.size() == states_.size() &&
           std::ranges::all_of(longest, [&](uint32_t length) { return length <= most; });
}

Result<TextAutomaton> TextAutomaton::And(const TextAutomaton& other, TextBudget& budget) const {
    using Pair = std::pair<uint32_t, uint32_t>;
    if (Empty() || other.Empty()) return TextAutomaton({});
    Numbering<Pair> numbers;
    numbers.Of({0, 0});
    std::vector<State> states;
    for (size_t at = 0; at < numbers.size(); ++at) {
        if (numbers.size() > kMostStates) return TooLarge();
        const State& left = states_[numbers[at].first];
        const State& right = other.states_[numbers[at].second];
        if (!budget.Spend(1 + left.edges.size() + right.edges.size())) return TooLarge();
        State made{.final = left.final && right.final};
        for (size_t i = 0, j = 0; i < left.edges.size() && j < right.edges.size();) {
            const Edge &one = left.edges[i], &two = right.edges[j];
            const uint8_t low = std::max(one.bytes.low, two.bytes.low);
            const uint8_t high = std::min(one.bytes.high, two.bytes.high);
            if (low <= high) AddEdge(made.edges, {low, high}, numbers.Of({one.to, two.to}));
            one.bytes.high < two.bytes.high ? ++i : ++j;
        }
        states.push_back(std::move(made));
    }
    return TextAutomaton(std::move(states));
}

TextAutomaton TextAutomaton::Not() const {
    std::vector<State> states = states_;
    if (states.empty()) states.emplace_back();
    const auto others = static_cast<uint32_t>(states.size());
    states.emplace_back();
    for (State& state : states) {
        std::vector<Edge> edges;
        uint32_t next = 0;  // the first byte without an edge
        for (const Edge& edge : state.edges) {
            const uint8_t low = edge.bytes.low;
            if (next < low) {
                AddEdge(edges, {static_cast<uint8_t>(next), static_cast<uint8_t>(low - 1)}, others);
            }
            AddEdge(edges, edge.bytes, edge.to);
            next = edge.bytes.high + 1U;
        }
        if (next <= kMostByte) AddEdge(edges, {static_cast<uint8_t>(next), kMostByte}, others);
        state.edges = std::move(edges);
        state.final = !state.final;
    }
    return TextAutomaton(std::move(states));
}

void TextAutomaton::Trim() {
    std::vector<std::vector<uint32_t>> before(states_.size());
    std::vector<uint32_t> open;
    std::vector<bool> alive(states_.size());
    for (uint32_t state = 0; state < states_.size(); ++state) {
        for (const Edge& edge : states_[state].edges) before[edge.to].push_back(state);
        if (states_[state].final) open.push_back(state);
    }
    while (!open.empty()) {
        const uint32_t state = open.back();
        open.pop_back();
        if (alive[state]) continue;
        alive[state] = true;
        open.insert(open.end(), before[state].begin(), before[state].end());
    }
    if (states_.empty() || !alive[0]) return states_.clear();
    std::vector<uint32_t> number(states_.size());
    std::vector<State> kept;
    for (uint32_t state = 0; state < states_.size(); ++state) {
        if (!alive[state]) continue;
        number[state] = static_cast<uint32_t>(kept.size());
        kept.push_back(std::move(states_[state]));
    }
    for (State& state : kept) {
        std::erase_if(state.edges, [&](const Edge& edge) { return !alive[edge.to]; });
        for (Edge& edge : state.edges) edge.to = number[edge.to];
    }
    states_ = std::move(kept);
}

GrammarBuilder::Expr TextAutomaton::Written(bool json_string, GrammarBuilder& builder) const {
    ByteGraph graph{.states = static_cast<uint32_t>(states_.size())};
    JsonSpelling spelling(graph);
    for (uint32_t state = 0; state < states_.size(); ++state) {
        if (states_[state].final) graph.finals.push_back(state);
        for (const Edge& edge : states_[state].edges) {
            if (json_string) {
                spelling.Add(state, edge);
            } else {
                graph.edges.push_back({state, edge.to, edge.bytes});
            }
        }
    }
    return builder.Graph(std::move(graph));
}

}  // namespace weft::grammar
