// Last step of compiling a grammar: removes empty edges, makes rules deterministic if that stays
// small, and fills the tables of a Grammar.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/nfa.h"

namespace weft::grammar {

class GrammarAssembly {
  public:
    static constexpr size_t kMostStates = 1 << 17;
    static constexpr size_t kMostTableBytes = 64 << 20;
    static constexpr uint64_t kMostSteps = 20'000'000;
    // Shared budget of all rules for determinization beyond the allowance given by a rule's size.
    static constexpr size_t kSpareStates = 4096;
    static constexpr uint64_t kSpareSteps = 8'000'000;

    explicit GrammarAssembly(const Nfa& nfa, uint64_t limit_steps = UINT64_MAX);
    // kUsage: too large. kCancelled: more than limit_steps.
    Result<GrammarPtr> Run(uint32_t root);

  private:
    using Set = std::vector<uint32_t>;  // sorted states of the Nfa

    struct Bytes {
        ByteRange range;
        Set to;  // states of the result
    };
    struct Call {
        uint32_t rule;
        uint32_t to;
    };
    struct State {
        std::vector<Bytes> bytes;
        std::vector<Call> calls;
        bool final = false;
    };

    // The states that can be reached from `from` without consuming a byte, and that have byte edges
    // or calls or end the rule.
    Set Closure(const Set& from);
    bool AddRule(uint32_t rule, bool deterministic);
    bool AddDeterministic(uint32_t rule, size_t size);
    // The result's state for a set of Nfa states; created if new.
    uint32_t StateOf(Set set);
    // As StateOf, but without determinization: one state per member.
    Set StatesOf(const Set& set);
    // Adds the edges and calls of a state; if TooMuch() becomes true, only some of them.
    void Fill(uint32_t state);
    void FillCalls(uint32_t state, const Set& members);
    bool TooMuch() const {
        return states_.size() > most_states_ || steps_ > std::min(most_steps_, limit_steps_);
    }
    Result<GrammarPtr> Tables(uint32_t root);
    void FillClasses(Grammar& grammar) const;
    void FillRow(const State& state, Grammar& grammar) const;
    void FillCallTable(Grammar& grammar) const;
    void FillRuns(Grammar& grammar) const;

    const Nfa& nfa_;
    const uint64_t limit_steps_;
    std::vector<State> states_;       // [0] is unused
    std::vector<uint32_t> start_of_;  // by rule: state of the result; 0: unreachable
    std::vector<Set> members_;        // sets of the current rule's states, from rule_begin_ on
    struct Hash {
        size_t operator()(const Set& set) const;
    };
    std::unordered_map<Set, uint32_t, Hash> known_;
    size_t rule_begin_ = 0;
    bool deterministic_ = true;
    size_t most_states_ = 0;
    uint64_t steps_ = 0, most_steps_ = 0;
    size_t spare_states_ = kSpareStates;
    uint64_t spare_steps_ = kSpareSteps;
    std::vector<uint32_t> stamp_;  // by Nfa state: number of the last closure that contained it
    uint32_t round_ = 0;
    std::vector<bool> wanted_;  // by rule
    std::vector<uint32_t> open_rules_;
};

}  // namespace weft::grammar
