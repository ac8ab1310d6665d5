// The first form of a grammar on its way from expressions to a Grammar: one nondeterministic
// automaton a rule, with empty edges, and what is known about them all together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/builder.h"

namespace weft::grammar {

struct Nfa {
    static constexpr size_t kMostStates = 1 << 18;
    static constexpr size_t kMostEdges = 1 << 20;
    // Expressions that are written out: some take no edge.
    static constexpr size_t kMostWritten = 4 * kMostEdges;

    enum class Kind : uint8_t { kEmpty, kBytes, kCall };
    struct Edge {
        uint32_t to;
        uint32_t next;  // edge of the same state, or kNone
        uint32_t rule;  // kCall
        Kind kind;
        ByteRange bytes;  // kBytes
    };
    static constexpr uint32_t kNone = UINT32_MAX;

    std::vector<Edge> edges;
    std::vector<uint32_t> first;  // edge by state, or kNone
    std::vector<uint32_t> rule;   // by state
    // By rule.
    std::vector<uint32_t> start, end;
    std::vector<bool> nullable;
    // By state: it can reach the end of its rule; no bytes lie between it and its rule's start.
    std::vector<bool> productive, leading;

    // All rules of the builder, with nullable, productive and leading. kUsage: too large.
    static Result<Nfa> Make(const GrammarBuilder& builder);

  private:
    void FindLeading();
    void FindProductive();
};

}  // namespace weft::grammar
