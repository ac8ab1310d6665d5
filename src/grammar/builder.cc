#include "grammar/builder.h"

#include <algorithm>

#include "grammar/assembly.h"
#include "grammar/nfa.h"

namespace weft::grammar {
namespace {

// Finds a cycle of rules that call each other before any byte, as "a -> b -> a"; empty: none.
class LeftRecursion {
  public:
    explicit LeftRecursion(const Nfa& nfa) : begins_with_(nfa.start.size()) {
        for (uint32_t state = 0; state < nfa.first.size(); ++state) {
            if (!nfa.leading[state]) continue;
            for (uint32_t at = nfa.first[state]; at != Nfa::kNone; at = nfa.edges[at].next) {
                if (nfa.edges[at].kind != Nfa::Kind::kCall) continue;
                begins_with_[nfa.rule[state]].push_back(nfa.edges[at].rule);
            }
        }
    }

    std::vector<uint32_t> Find() const {
        enum : uint8_t { kNew, kOpen, kDone };
        std::vector<uint8_t> seen(begins_with_.size(), kNew);
        std::vector<uint32_t> path;
        std::vector<size_t> next;  // per rule in path: index of the rule to visit next
        for (uint32_t root = 0; root < begins_with_.size(); ++root) {
            if (seen[root] != kNew) continue;
            path.assign(1, root);
            next.assign(1, 0);
            seen[root] = kOpen;
            while (!path.empty()) {
                const uint32_t rule = path.back();
                if (next.back() == begins_with_[rule].size()) {
                    seen[rule] = kDone;
                    path.pop_back();
                    next.pop_back();
                    continue;
                }
                const uint32_t called = begins_with_[rule][next.back()++];
                if (seen[called] == kOpen) {
                    while (path.front() != called) path.erase(path.begin());
                    path.push_back(called);
                    return path;
                }
                if (seen[called] != kNew) continue;
                seen[called] = kOpen;
                path.push_back(called);
                next.push_back(0);
            }
        }
        return {};
    }

  private:
    std::vector<std::vector<uint32_t>> begins_with_;
};

}  // namespace

GrammarBuilder::Expr GrammarBuilder::Add(Node node) {
    exprs_.push_back(std::move(node));
    return static_cast<Expr>(exprs_.size() - 1);
}

std::vector<GrammarBuilder::Part> GrammarBuilder::Parts(const std::vector<Expr>& exprs) {
    std::vector<Part> parts;
    parts.reserve(exprs.size());
    for (const Expr expr : exprs) parts.push_back({expr});
    return parts;
}

GrammarBuilder::Expr GrammarBuilder::Text(std::string_view bytes) {
    Node node{Kind::kText};
    text_bytes_ += bytes.size();
    if (text_bytes_ <= kMostTextBytes) node.text = bytes;
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::Points(PointSet set) {
    Node node{Kind::kPoints};
    node.points = Normalized(std::move(set));
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::Sequence(std::vector<Expr> parts) {
    if (parts.size() == 1) return parts[0];
    Node node{Kind::kSequence};
    node.parts = Parts(parts);
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::Choice(std::vector<Expr> parts) {
    if (parts.size() == 1) return parts[0];
    Node node{Kind::kChoice};
    node.parts = Parts(parts);
    return Add(std::move(node));
}

// Simplifies (e?){n}, (e*)+ and similar to one repetition of e. Expanded as written, each inner
// part would be optional on its own and need more states.
bool GrammarBuilder::FlattenRepeat(Expr& body, uint32_t& least, uint32_t& most) const {
    WEFT_CHECK(body < exprs_.size());
    const Node& inner = exprs_[body];
    if (inner.kind != Kind::kRepeat || inner.most == 0 || most == 0) return false;
    const bool endless = inner.most == kNoLimit || most == kNoLimit;
    const uint64_t product = endless ? kNoLimit : uint64_t{inner.most} * most;
    const bool any = inner.least == 0 && (endless || product < kNoLimit);
    const bool some = inner.least == 1 && inner.most == kNoLimit;
    if (!any && !some) return false;
    body = inner.other;
    least = any ? 0 : least;
    most = static_cast<uint32_t>(product);
    return true;
}

GrammarBuilder::Expr GrammarBuilder::Repeat(Expr body, uint32_t least, uint32_t most) {
    WEFT_CHECK(least <= most);
    if (FlattenRepeat(body, least, most)) return Repeat(body, least, most);
    Node node{Kind::kRepeat};
    node.least = least;
    node.most = most;
    node.other = body;
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::Call(Rule rule) {
    Node node{Kind::kCall};
    node.other = rule;
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::Graph(ByteGraph graph) {
    Node node{Kind::kGraph};
    node.other = static_cast<uint32_t>(graphs_.size());
    graph_edges_ += graph.edges.size();
    graphs_.push_back(Full() ? ByteGraph{} : std::move(graph));
    return Add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::List(std::vector<Part> parts, Expr separator) {
    Node node{Kind::kList};
    node.other = separator;
    node.parts = std::move(parts);
    return Add(std::move(node));
}

GrammarBuilder::Rule GrammarBuilder::AddRule(std::string name) {
    rules_.push_back({std::move(name)});
    return static_cast<Rule>(rules_.size() - 1);
}

void GrammarBuilder::Define(Rule rule, Expr body) {
    rules_[rule].body = body;
}

uint64_t GrammarBuilder::StatesOf(Expr expr) const {
    constexpr uint64_t kMost = uint64_t{1} << 32;
    WEFT_CHECK(expr < exprs_.size());
    const Node& node = exprs_[expr];
    uint64_t states = 1;
    switch (node.kind) {
        case Kind::kText: states += node.text.size(); break;
        case Kind::kPoints:
            for (const ByteSequence& sequence : Utf8Sequences(node.points)) {
                states += sequence.length;
            }
            break;
        case Kind::kSequence:
        case Kind::kChoice:
        case Kind::kList:
            for (const Part& part : node.parts) states += StatesOf(part.expr);
            break;
        case Kind::kRepeat:
            states = StatesOf(node.other) * (node.most == kNoLimit ? node.least + 1 : node.most);
            break;
        case Kind::kCall: break;
        case Kind::kGraph: states += graphs_[node.other].states; break;
    }
    return std::min(states, kMost);
}

Result<GrammarPtr> GrammarBuilder::Build(Rule root, const CompileLimits& limits) const {
    if (Full()) {
        return MakeError(ErrorCode::kUsage,
                         "grammar: too large: {} rules, {} expressions, {} automaton edges and {} "
                         "bytes of text; the limits are {}, {}, {} and {}",
                         rules_.size(), exprs_.size(), graph_edges_, text_bytes_, kMostRules,
                         kMostExprs, kMostGraphEdges, kMostTextBytes);
    }
    WEFT_ASSIGN(const Nfa nfa, Nfa::Make(*this));
    if (nfa.first.size() > limits.states) {
        return MakeError(ErrorCode::kCancelled, "grammar: its {} states exceed {}; deferred",
                         nfa.first.size(), limits.states);
    }
    const std::vector<uint32_t> ring = LeftRecursion(nfa).Find();
    if (!ring.empty()) {
        std::string names;
        for (const uint32_t rule : ring) {
            if (names.size() > 200) {
                names += " -> ...";
                break;
            }
            names += (names.empty() ? "" : " -> ") + rules_[rule].name;
        }
        return MakeError(ErrorCode::kUsage,
                         "grammar: rule '{}' is left-recursive: {}; put something non-empty before "
                         "the recursion, or use a repetition",
                         rules_[ring[0]].name, names);
    }
    if (!nfa.productive[nfa.start[root]]) {
        return MakeError(ErrorCode::kUsage,
                         "grammar: no finite text matches rule '{}': each of its alternatives "
                         "needs the rule itself, or a character of an empty class",
                         rules_[root].name);
    }
    return GrammarAssembly(nfa, limits.steps).Run(root);
}

}  // namespace weft::grammar
