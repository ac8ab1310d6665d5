// A compiled grammar: which texts a constrained generation may become.
//
// Made by gbnf.h, json_schema.h and regex_grammar.h, or by hand with a GrammarBuilder (builder.h);
// followed by a Matcher (matcher.h). Texts are UTF-8, matching goes byte by byte.
//
// The form is one automaton a rule. Its states have edges for bytes and calls of rules: a call
// runs the other rule's automaton and goes on at a state of its own. Inside a rule edges are
// deterministic unless that would take too many states. Every state can reach the end of its
// rule: what can't is not in here. No rule is left-recursive.
//
// Thread: never changes once made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft::grammar {

// Which of the 256 bytes.
struct ByteSet {
    std::array<uint64_t, 4> words = {};
    void Add(size_t byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
    bool Within(const ByteSet& other) const {
        uint64_t more = 0;
        for (size_t i = 0; i < words.size(); ++i) more |= words[i] & ~other.words[i];
        return more == 0;
    }
    auto operator<=>(const ByteSet&) const = default;
};

class Grammar {
  public:
    static constexpr uint32_t kLongRun = 255;  // as good as endless
    // A rule that begins at the state `start`, then `to`; a `to` of 0: the caller ends with it.
    struct Call {
        uint32_t start;
        uint32_t to;
    };

    // State 0 is no state. Precondition everywhere: state < num_states().
    size_t num_states() const { return flags_.size(); }
    uint32_t start() const { return start_; }
    // The states that follow on `byte`; mostly one or none.
    std::span<const uint32_t> Next(uint32_t state, uint8_t byte) const {
        const uint32_t* entry = &table_[size_t{state} * num_classes_ + class_of_[byte]];
        if (*entry < kList) return {entry, *entry != 0 ? size_t{1} : 0};
        const uint32_t* list = &lists_[*entry - kList];
        return {list + 1, *list};
    }
    std::span<const Call> Calls(uint32_t state) const {
        return {calls_.data() + first_call_[state], calls_.data() + first_call_[state + 1]};
    }
    bool IsFinal(uint32_t state) const { return (flags_[state] & kFinal) != 0; }  // ends its rule
    bool HasBytes(uint32_t state) const { return (flags_[state] & kBytes) != 0; }
    // Neither final nor with calls: bytes are all that leads on.
    bool IsPlain(uint32_t state) const { return flags_[state] == kBytes; }

    // Any `length` bytes of `set` can follow on the state one after the other, all of the states on
    // the way are plain. False: not so, or not known.
    bool Runs(uint32_t state, const ByteSet& set, uint32_t length) const {
        const Run run = runs_[state];
        return length <= run.length && run.length > 0 && set.Within(run_sets_[run.set]);
    }

    size_t size_bytes() const;

  private:
    friend class GrammarAssembly;
    Grammar() = default;

    static constexpr uint32_t kList = 1U << 31;  // entries from here on are places in lists_
    static constexpr uint8_t kFinal = 1, kBytes = 2, kCalls = 4;

    struct Run {
        uint32_t set = 0;  // of run_sets_
        uint32_t length = 0;
    };

    uint32_t start_ = 0;
    size_t num_classes_ = 0;
    std::array<uint8_t, 256> class_of_ = {};  // bytes that no edge tells apart share a class
    std::vector<uint32_t> table_;             // [state][class]
    std::vector<uint32_t> lists_;             // a count, then as many states; and so on
    std::vector<uint32_t> first_call_;        // by state, and one more
    std::vector<Call> calls_;
    std::vector<uint8_t> flags_;
    std::vector<Run> runs_;  // by state
    std::vector<ByteSet> run_sets_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// How far a grammar is compiled before its compiler gives up with kCancelled: for callers that try
// for a moment first. States of the automata before they are made deterministic, and steps of that,
// some 40 ns each.
struct CompileLimits {
    size_t states = SIZE_MAX;
    uint64_t steps = UINT64_MAX;
};

}  // namespace weft::grammar
