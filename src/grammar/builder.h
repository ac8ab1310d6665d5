// Puts a grammar together from expressions, and compiles it.
//
//     GrammarBuilder make;
//     const auto root = make.AddRule("root");
//     make.Define(root, make.Repeat(make.Points({{'a', 'z'}}), 1, GrammarBuilder::kNoLimit));
//     WEFT_ASSIGN(GrammarPtr grammar, make.Build(root));
//
// An expression may be used in several places; each use is a copy of it in what is compiled. A
// rule is there once, however often it is called: that is what rules are for, and for recursion.
//
// Nesting of expressions is the caller's to bound (kMostNesting); everything else is bounded here.
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

// States, the first of which is where texts begin, and bytes that lead from one to another. In
// order of `from` or not; no states: no text.
struct ByteGraph {
    struct Edge {
        uint32_t from, to;
        ByteRange bytes;
    };
    uint32_t states = 0;
    std::vector<Edge> edges{};
    std::vector<uint32_t> finals{};
};

// What automata of one grammar may cost before they become expressions (grammar/text_automaton.h).
struct TextBudget {
    uint64_t steps = 1 << 22;
    // Nothing is left once it was asked for more than there was.
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
    static constexpr size_t kMostTextBytes = 1 << 20;  // of all Texts together

    // Part of a list.
    struct Part {
        Expr expr;
        bool optional = false;
        bool repeated = false;  // any number of times; implies optional
    };

    Expr Text(std::string_view bytes);  // UTF-8; empty: the empty text
    Expr Points(PointSet set);          // one code point of the set
    Expr Sequence(std::vector<Expr> parts);
    Expr Choice(std::vector<Expr> parts);  // of none: nothing matches
    Expr Repeat(Expr body, uint32_t least, uint32_t most);
    Expr Call(Rule rule);
    Expr Graph(ByteGraph graph);  // the bytes on the ways to its final states
    // The parts in this order, with `separator` between those that are there.
    Expr List(std::vector<Part> parts, Expr separator);

    Rule AddRule(std::string name);  // the name is for errors
    void Define(Rule rule, Expr body);
    TextBudget& text_budget() { return text_budget_; }
    // Too many expressions, rules, edges or bytes of texts: Build will refuse; stop adding.
    bool Full() const {
        return exprs_.size() > kMostExprs || rules_.size() > kMostRules ||
               graph_edges_ > kMostGraphEdges || text_bytes_ > kMostTextBytes;
    }

    // kUsage: a rule is left-recursive (the message names the rules of the ring); no text of
    // finite length follows the grammar; it is too large when repetitions are written out.
    // kCancelled: beyond `limits`. Every rule must have been defined.
    Result<GrammarPtr> Build(Rule root, const CompileLimits& limits = {}) const;

  private:
    friend class NfaEmitter;
    enum class Kind : uint8_t { kText, kPoints, kSequence, kChoice, kRepeat, kCall, kList, kGraph };
    struct Node {
        Kind kind;
        uint32_t least = 0, most = 0;  // kRepeat
        // kRepeat: the body; kCall: the rule; kList: the separator; kGraph: which
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
