// First compiled form of expressions: one nondeterministic automaton per rule, with empty edges,
// and properties of all rules.
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
    // Maximum number of expanded expressions, some of which need no edge.
    static constexpr size_t kMostWritten = 4 * kMostEdges;

    enum class Kind : uint8_t { kEmpty, kBytes, kCall };
    struct Edge {
        uint32_t to;
        uint32_t next;  // next edge of the same state, or kNone
        uint32_t rule;  // kCall
        Kind kind;
        ByteRange bytes;  // kBytes
    };
    static constexpr uint32_t kNone = UINT32_MAX;

    std::vector<Edge> edges;
    std::vector<uint32_t> first;  // first edge by state, or kNone
    std::vector<uint32_t> rule;   // by state
    // Indexed by rule:
    std::vector<uint32_t> start, end;
    std::vector<bool> nullable;
    // Indexed by state. productive: the state can reach the end of its rule. leading: the state is
    // reachable from its rule's start without consuming a byte.
    std::vector<bool> productive, leading;

    // Compiles all rules of the builder and computes the properties. kUsage: too large.
    static Result<Nfa> Make(const GrammarBuilder& builder);

  private:
    void FindLeading();
    void FindProductive();
};

}  // namespace weft::grammar
