// Sets of texts as deterministic automata over bytes: for what expressions alone don't say, texts
// that follow several expressions at once, and texts that don't follow one.
//
//     WEFT_ASSIGN(TextAutomaton texts, TextAutomaton::Make(own, rule, builder.text_budget()));
//     WEFT_ASSIGN(texts, texts.OfLengths(2, 8, builder.text_budget()));
//     const Expr inside = texts.Written(true, builder);
//
// The work is bounded: kUnsupported where an automaton would take more than kMostStates states, or
// all those of a grammar more than its budget. Thread: one caller.
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
        std::vector<Edge> edges{};  // in order, apart from each other
        bool final = false;
    };

    // The first state is where texts begin. What can't come to a final state is left out.
    explicit TextAutomaton(std::vector<State> states) : states_(std::move(states)) { Trim(); }
    // Texts of a rule that calls no other. kUsage: too large when repetitions are written out.
    static Result<TextAutomaton> Make(const GrammarBuilder& builder, GrammarBuilder::Rule rule,
                                      TextBudget& budget);

    Result<TextAutomaton> And(const TextAutomaton& other, TextBudget& budget) const;
    // Those of so many code points (the texts are UTF-8); kNoLimit: any number from `least` on.
    Result<TextAutomaton> OfLengths(uint32_t least, uint32_t most, TextBudget& budget) const;
    TextAutomaton Not() const;  // all other strings of bytes
    bool Empty() const { return states_.empty(); }

    // As an expression; in a JSON string with the one escape that JSON needs for a character.
    GrammarBuilder::Expr Written(bool json_string, GrammarBuilder& builder) const;

  private:
    void Trim();
    // No text has more code points; false where that isn't seen at once.
    bool NoneLonger(uint32_t most) const;

    std::vector<State> states_;  // none: no text
};

}  // namespace weft::grammar
