// Sets of texts as deterministic automata over bytes, for intersections and complements, which
// expressions cannot represent.
//
//     WEFT_ASSIGN(TextAutomaton texts, TextAutomaton::Make(own, rule, builder.text_budget()));
//     WEFT_ASSIGN(texts, texts.OfLengths(2, 8, builder.text_budget()));
//     const Expr inside = texts.Written(true, builder);
//
// Work is limited: kUnsupported if an automaton would have more than kMostStates states, or if the
// automata of a grammar exceed its budget. Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "grammar/builder.h"
#include "grammar/nfa.h"

namespace weft::grammar {

class TextAutomaton {
  public:
    static constexpr size_t kMostStates = 1 << 16;
    struct Edge {
        ByteRange bytes;
        uint32_t to;
        bool operator==(const Edge&) const = default;
    };
    struct State {
        std::vector<Edge> edges{};  // sorted and disjoint
        bool final = false;
    };

    // State 0 is the start. States that cannot reach a final state are removed.
    explicit TextAutomaton(std::vector<State> states) : states_(std::move(states)) { Trim(); }
    // The texts of a rule that calls no other rule. kUsage: too large with its repetitions
    // expanded.
    static Result<TextAutomaton> Make(const GrammarBuilder& builder, GrammarBuilder::Rule rule,
                                      TextBudget& budget);

    Result<TextAutomaton> And(const TextAutomaton& other, TextBudget& budget) const;
    // The texts of `least` to `most` code points (kNoLimit: unlimited). The texts are UTF-8.
    Result<TextAutomaton> OfLengths(uint32_t least, uint32_t most, TextBudget& budget) const;
    TextAutomaton Not() const;  // all other byte strings
    bool Empty() const { return states_.empty(); }

    // An expression that matches these texts. json_string: the texts are in a JSON string, so
    // characters that JSON escapes match in escaped form.
    GrammarBuilder::Expr Written(bool json_string, GrammarBuilder& builder) const;

  private:
    void Trim();
    // True only if no text has more than `most` code points; may miss some cases.
    bool NoneLonger(uint32_t most) const;

    std::vector<State> states_;  // empty: no text
};

}  // namespace weft::grammar
