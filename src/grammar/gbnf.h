// Compiles grammars in GBNF, the notation of llama.cpp (specified in its grammars/README.md):
//
//     root  ::= "{" pair ("," pair)* "}"   # the text follows the rule `root`
//     pair  ::= [a-z]+ ":" ([0-9]{1,3} | [^"\\\n] | .)
//
// Strings and classes support the escapes \n \r \t \\ \" \[ \] \x41 \u0041 \U00000041 for code
// points. A rule ends at the end of a line, except inside parentheses and after '|'.
//
// Rejected with a specific error: left-recursive rules (also after parts that may be empty),
// undefined and duplicate rules, repetitions above 10000, tokens such as <think>.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/grammar.h"

namespace weft::grammar {

inline constexpr size_t kMostGbnfBytes = 1 << 20;

// Errors: kUsage with line and column; as GrammarBuilder::Build.
Result<GrammarPtr> GrammarFromGbnf(std::string_view text, const CompileLimits& limits = {});

}  // namespace weft::grammar
