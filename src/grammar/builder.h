// Builds a grammar from expressions and compiles it.
//
//     GrammarBuilder make;
//     const auto root = make.AddRule("root");
//     make.Define(root, make.Repeat(make.Points({{'a', 'z'}}), 1, GrammarBuilder::kNoLimit));
//     WEFT_ASSIGN(GrammarPtr grammar, make.Build(root));
//
// An expression may be used in several places; each use is compiled to a copy. A rule is compiled
// once, however often it is called. Rules therefore save space and allow recursion.
//
// Limits: the caller bounds the nesting of expressions (kMostNesting); GrammarBuilder checks all
// other limits.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/point_set.h"

namespace weft::grammar {

// An automaton over bytes: state 0 is the start. Edges may be in any order. No states: matches
// nothing.
struct ByteGraph {
    struct Edge {
        uint32_t from, to;
        ByteRange bytes;
    };
    uint32_t states = 0;
    std::vector<Edge> edges{};
    std::vector<uint32_t> finals{};
};

// Shared work budget for text automata before they become expressions (grammar/text_automaton.h).
struct TextBudget {
    uint64_t steps = 1 << 22;
    // States of one regular expression (GrammarBuilder::StatesOf): the limit, and the most so far.
    uint64_t limit_states = UINT64_MAX, most_states = 0;
    // Consumes `wanted` steps, or all remaining steps if there are fewer. Returns false if no steps
    // are left.
    bool Spend(uint64_t wanted) {
        steps = wanted <= steps ? steps - wanted : 0;
        return steps > 0;
    }
};

class GrammarBuilder {
  public:
    using Expr = uint32_t;
    using Rule = uint32_t;
    static constexpr uint32_t kNoLimit = UINT32_MAX;
    static constexpr int kMostNesting = 200;
    static constexpr size_t kMostExprs = 1 << 18;
    static constexpr size_t kMostRules = 1 << 14;
    static constexpr size_t kMostGraphEdges = 1 << 20;
    static constexpr size_t kMostTextBytes = 1 << 20;  // of all Text expressions

    // An element of a List.
    struct Part {
        Expr expr;
        bool optional = false;
        bool repeated = false;  // any number of times, also none
    };

    Expr Text(std::string_view bytes);  // UTF-8; may be empty
    Expr Points(PointSet set);          // one code point of the set
    Expr Sequence(std::vector<Expr> parts);
    Expr Choice(std::vector<Expr> parts);  // without parts: matches nothing
    Expr Repeat(Expr body, uint32_t least, uint32_t most);
    Expr Call(Rule rule);
    Expr Graph(ByteGraph graph);  // the byte strings that the graph accepts
    // The parts in this order, with `separator` between the parts that are present.
    Expr List(std::vector<Part> parts, Expr separator);

    Rule AddRule(std::string name);  // the name is used in errors
    void Define(Rule rule, Expr body);
    // About how many states the expression needs, at most 2^32.
    uint64_t StatesOf(Expr expr) const;
    TextBudget& text_budget() { return text_budget_; }
    // Whether a limit is exceeded (expressions, rules, edges or text bytes). Then stop adding:
    // Build will fail.
    bool Full() const {
        return exprs_.size() > kMostExprs || rules_.size() > kMostRules ||
               graph_edges_ > kMostGraphEdges || text_bytes_ > kMostTextBytes;
    }

    // Compiles the grammar. Every rule must be defined.
    // kUsage: a rule is left-recursive (the message names the cycle), no finite text matches, or
    // the grammar is too large with its repetitions expanded.
    // kCancelled: compiling takes more than `limits`.
    Result<GrammarPtr> Build(Rule root, const CompileLimits& limits = {}) const;

  private:
    friend class NfaEmitter;
    enum class Kind : uint8_t { kText, kPoints, kSequence, kChoice, kRepeat, kCall, kList, kGraph };
    struct Node {
        Kind kind;
        uint32_t least = 0, most = 0;  // kRepeat
        // kRepeat: body; kCall: rule; kList: separator; kGraph: index in graphs_
        uint32_t other = 0;
        std::string text = {};         // kText
        PointSet points = {};          // kPoints
        std::vector<Part> parts = {};  // kSequence, kChoice, kList
    };
    struct NamedRule {
        std::string name;
        Expr body = UINT32_MAX;
    };
    Expr Add(Node node);
    bool FlattenRepeat(Expr& body, uint32_t& least, uint32_t& most) const;
    std::vector<Part> Parts(const std::vector<Expr>& exprs);

    std::vector<Node> exprs_;
    std::vector<NamedRule> rules_;
    std::vector<ByteGraph> graphs_;
    size_t graph_edges_ = 0, text_bytes_ = 0;
    TextBudget text_budget_;
};

}  // namespace weft::grammar
