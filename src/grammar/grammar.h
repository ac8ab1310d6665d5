// A compiled grammar: the set of texts allowed in a constrained generation.
//
// Made from GBNF, JSON schema or a regular expression (gbnf.h, json_schema.h, regex_grammar.h), or
// with a GrammarBuilder (builder.h). A Matcher (matcher.h) computes which tokens may come next.
// Texts are UTF-8; matching works on bytes.
//
// Representation: one automaton per rule. States have byte edges and calls of other rules; a call
// runs the other rule's automaton and continues at a given state. Within a rule, edges are
// deterministic unless that needs too many states. Every state can reach the end of its rule. No
// rule is left-recursive.
//
// Thread: immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft::grammar {

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
    static constexpr uint32_t kLongRun = 255;  // treated as unlimited
    // Run the rule starting at `start`, then continue at `to`. `to` 0: the calling rule ends too.
    struct Call {
        uint32_t start;
        uint32_t to;
    };

    // State 0 is invalid. Precondition of all methods: state < num_states().
    size_t num_states() const { return flags_.size(); }
    uint32_t start() const { return start_; }
    // The successors for `byte`; usually at most one.
    std::span<const uint32_t> Next(uint32_t state, uint8_t byte) const {
        const uint32_t* entry = &table_[size_t{state} * num_classes_ + class_of_[byte]];
        if (*entry < kList) return {entry, *entry != 0 ? size_t{1} : 0};
        const uint32_t* list = &lists_[*entry - kList];
        return {list + 1, *list};
    }
    std::span<const Call> Calls(uint32_t state) const {
        return {calls_.data() + first_call_[state], calls_.data() + first_call_[state + 1]};
    }
    // Whether the rule may end here.
    bool IsFinal(uint32_t state) const { return (flags_[state] & kFinal) != 0; }
    bool HasBytes(uint32_t state) const { return (flags_[state] & kBytes) != 0; }
    // Whether the state is not final and has no calls, so that the text can only continue with a
    // byte edge of this state.
    bool IsPlain(uint32_t state) const { return flags_[state] == kBytes; }

    // Whether any `length` bytes of `set` can follow `state` through plain states only. False also
    // if this is unknown.
    bool Runs(uint32_t state, const ByteSet& set, uint32_t length) const {
        const Run run = runs_[state];
        return length <= run.length && run.length > 0 && set.Within(run_sets_[run.set]);
    }

    size_t size_bytes() const;

  private:
    friend class GrammarAssembly;
    Grammar() = default;

    static constexpr uint32_t kList = 1U << 31;  // larger entries are offsets into lists_
    static constexpr uint8_t kFinal = 1, kBytes = 2, kCalls = 4;

    struct Run {
        uint32_t set = 0;  // index in run_sets_
        uint32_t length = 0;
    };

    uint32_t start_ = 0;
    size_t num_classes_ = 0;
    std::array<uint8_t, 256> class_of_ = {};  // bytes that no edge distinguishes share a class
    std::vector<uint32_t> table_;             // [state][class]
    std::vector<uint32_t> lists_;             // lists of states, each preceded by its length
    std::vector<uint32_t> first_call_;        // by state, plus the end
    std::vector<Call> calls_;
    std::vector<uint8_t> flags_;
    std::vector<Run> runs_;  // by state
    std::vector<ByteSet> run_sets_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// Compile limits, for callers that first try with a small limit; above them the compiler returns
// kCancelled. states: states before determinization. steps: steps of determinization, about 40 ns
// each.
struct CompileLimits {
    size_t states = SIZE_MAX;
    uint64_t steps = UINT64_MAX;
};

}  // namespace weft::grammar
