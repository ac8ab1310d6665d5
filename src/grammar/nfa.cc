#include "grammar/nfa.h"

#include <map>

namespace weft::grammar {

// Expands expressions to edges between two states. No expression adds an edge into `from` or out of
// `to` (unless they are the same state), so adjacent expressions can share states.
class NfaEmitter {
  public:
    NfaEmitter(const GrammarBuilder& builder, Nfa& nfa) : builder_(builder), nfa_(nfa) {}

    Status Run() {
        for (uint32_t rule = 0; rule < builder_.rules_.size(); ++rule) {
            rule_ = rule;
            nfa_.start.push_back(State());
            nfa_.end.push_back(State());
            WEFT_CHECK(builder_.rules_[rule].body < builder_.exprs_.size());
            Emit(builder_.rules_[rule].body, nfa_.start.back(), nfa_.end.back());
            if (Full()) break;
        }
        if (!Full()) return {};
        return MakeError(
            ErrorCode::kUsage,
            "grammar: too large: rule '{}' and those before it need more than {} states, {} edges "
            "or {} expressions when their repetitions are expanded; use smaller counts",
            builder_.rules_[rule_].name, Nfa::kMostStates, Nfa::kMostEdges, Nfa::kMostWritten);
    }

  private:
    using Node = GrammarBuilder::Node;
    using Kind = GrammarBuilder::Kind;

    bool Full() const {
        return nfa_.first.size() > Nfa::kMostStates || nfa_.edges.size() > Nfa::kMostEdges ||
               written_ > Nfa::kMostWritten;
    }

    uint32_t State() {
        nfa_.first.push_back(Nfa::kNone);
        nfa_.rule.push_back(rule_);
        return static_cast<uint32_t>(nfa_.first.size() - 1);
    }

    void Edge(uint32_t from, uint32_t to, Nfa::Kind kind, ByteRange bytes = {}, uint32_t rule = 0) {
        nfa_.edges.push_back({to, nfa_.first[from], rule, kind, bytes});
        nfa_.first[from] = static_cast<uint32_t>(nfa_.edges.size() - 1);
    }
    void Empty(uint32_t from, uint32_t to) { Edge(from, to, Nfa::Kind::kEmpty); }

    void Emit(uint32_t expr, uint32_t from, uint32_t to) {
        ++written_;
        if (Full()) return;
        const Node& node = builder_.exprs_[expr];
        switch (node.kind) {
            case Kind::kText: return EmitText(node.text, from, to);
            case Kind::kPoints: return EmitPoints(node.points, from, to);
            case Kind::kSequence: return EmitSequence(node, from, to);
            case Kind::kChoice:
                for (const auto& part : node.parts) {
                    Emit(part.expr, from, to);
                    if (Full()) return;
                }
                return;
            case Kind::kRepeat: return EmitRepeat(node, from, to);
            case Kind::kCall: return Edge(from, to, Nfa::Kind::kCall, {}, node.other);
            case Kind::kList: return EmitList(node, from, to);
            case Kind::kGraph: return EmitGraph(builder_.graphs_[node.other], from, to);
        }
    }

    void EmitText(const std::string& text, uint32_t from, uint32_t to) {
        if (text.empty()) return Empty(from, to);
        for (size_t at = 0; at < text.size() && !Full(); ++at) {
            const uint32_t next = at + 1 == text.size() ? to : State();
            const auto byte = static_cast<uint8_t>(text[at]);
            Edge(from, next, Nfa::Kind::kBytes, {byte, byte});
            from = next;
        }
    }

    // Sequences with equal tails share states.
    void EmitPoints(const PointSet& points, uint32_t from, uint32_t to) {
        std::map<std::vector<uint32_t>, uint32_t> ends;
        for (const ByteSequence& sequence : Utf8Sequences(points)) {
            if (Full()) return;
            uint32_t after = to;
            std::vector<uint32_t> key;  // ranges from the last byte backwards
            for (size_t at = sequence.length - 1; at > 0; --at) {
                const ByteRange bytes = sequence.bytes[at];
                key.push_back(uint32_t{bytes.low} << 8 | bytes.high);
                const auto [known, added] = ends.try_emplace(key, 0);
                if (added) {
                    known->second = State();
                    Edge(known->second, after, Nfa::Kind::kBytes, bytes);
                }
                after = known->second;
            }
            Edge(from, after, Nfa::Kind::kBytes, sequence.bytes[0]);
        }
    }

    void EmitSequence(const Node& node, uint32_t from, uint32_t to) {
        if (node.parts.empty()) return Empty(from, to);
        for (size_t i = 0; i < node.parts.size() && !Full(); ++i) {
            const uint32_t next = i + 1 == node.parts.size() ? to : State();
            Emit(node.parts[i].expr, from, next);
            from = next;
        }
    }

    void EmitRepeat(const Node& node, uint32_t from, uint32_t to) {
        for (uint32_t i = 0; i < node.least && !Full(); ++i) {
            const uint32_t next = State();
            Emit(node.other, from, next);
            from = next;
        }
        if (node.most == GrammarBuilder::kNoLimit) {
            const uint32_t loop = State();
            Empty(from, loop);
            Emit(node.other, loop, loop);
            return Empty(loop, to);
        }
        for (uint32_t i = node.least; i < node.most && !Full(); ++i) {
            Empty(from, to);
            const uint32_t next = State();
            Emit(node.other, from, next);
            from = next;
        }
        Empty(from, to);
    }

    // Two tracks: `none` before the first present part, `some` after it.
    void EmitList(const Node& node, uint32_t from, uint32_t to) {
        uint32_t none = State(), some = State();
        Empty(from, none);
        bool may_be_none = true;
        for (const auto& part : node.parts) {
            if (Full()) return;
            const uint32_t begin = State(), next_none = State(), next_some = State();
            if (may_be_none) Empty(none, begin);
            Emit(node.other, some, begin);
            Emit(part.expr, begin, next_some);
            if (part.optional || part.repeated) {
                Empty(none, next_none);
                Empty(some, next_some);
            } else {
                may_be_none = false;
            }
            if (part.repeated) Emit(node.other, next_some, begin);
            none = next_none;
            some = next_some;
        }
        if (may_be_none) Empty(none, to);
        Empty(some, to);
    }

    void EmitGraph(const ByteGraph& graph, uint32_t from, uint32_t to) {
        const auto first = static_cast<uint32_t>(nfa_.first.size());
        for (uint32_t i = 0; i < graph.states && !Full(); ++i) State();
        if (Full() || graph.states == 0) return;
        Empty(from, first);
        for (const ByteGraph::Edge& edge : graph.edges) {
            if (Full()) return;
            Edge(first + edge.from, first + edge.to, Nfa::Kind::kBytes, edge.bytes);
        }
        for (const uint32_t state : graph.finals) Empty(first + state, to);
    }

    const GrammarBuilder& builder_;
    Nfa& nfa_;
    uint32_t rule_ = 0;
    size_t written_ = 0;
};

Result<Nfa> Nfa::Make(const GrammarBuilder& builder) {
    Nfa nfa;
    WEFT_TRY(NfaEmitter(builder, nfa).Run());
    nfa.FindLeading();
    nfa.FindProductive();
    return nfa;
}

void Nfa::FindLeading() {
    leading.assign(first.size(), false);
    nullable.assign(start.size(), false);
    std::vector<uint32_t> open;
    std::vector<std::vector<uint32_t>> waiting(start.size());  // states after calls, by rule
    const auto visit = [&](uint32_t state) {
        if (leading[state]) return;
        leading[state] = true;
        open.push_back(state);
    };
    for (const uint32_t state : start) visit(state);
    while (!open.empty()) {
        const uint32_t state = open.back();
        open.pop_back();
        const uint32_t own = rule[state];
        if (state == end[own] && !nullable[own]) {
            nullable[own] = true;
            for (const uint32_t behind : waiting[own]) visit(behind);
        }
        for (uint32_t at = first[state]; at != kNone; at = edges[at].next) {
            const Edge& edge = edges[at];
            if (edge.kind == Kind::kEmpty) visit(edge.to);
            if (edge.kind != Kind::kCall) continue;
            nullable[edge.rule] ? visit(edge.to) : waiting[edge.rule].push_back(edge.to);
        }
    }
}

void Nfa::FindProductive() {
    struct Incoming {
        uint32_t from;
        uint32_t called;  // rule, or kNone
    };
    std::vector<std::vector<Incoming>> incoming(first.size());
    for (uint32_t state = 0; state < first.size(); ++state) {
        for (uint32_t at = first[state]; at != kNone; at = edges[at].next) {
            const bool call = edges[at].kind == Kind::kCall;
            incoming[edges[at].to].push_back({state, call ? edges[at].rule : kNone});
        }
    }
    productive.assign(first.size(), false);
    std::vector<uint32_t> open;
    std::vector<std::vector<uint32_t>> waiting(start.size());  // states before calls, by rule
    const auto visit = [&](uint32_t state) {
        if (productive[state]) return;
        productive[state] = true;
        open.push_back(state);
    };
    for (const uint32_t state : end) visit(state);
    while (!open.empty()) {
        const uint32_t state = open.back();
        open.pop_back();
        const uint32_t own = rule[state];
        if (state == start[own]) {
            for (const uint32_t before : waiting[own]) visit(before);
        }
        for (const Incoming& edge : incoming[state]) {
            if (edge.called == kNone || productive[start[edge.called]]) {
                visit(edge.from);
            } else {
                waiting[edge.called].push_back(edge.from);
            }
        }
    }
}

}  // namespace weft::grammar
