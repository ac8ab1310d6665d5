// Grammars in GBNF, the notation of llama.cpp (its grammars/README.md is the specification):
//
//     root  ::= "{" pair ("," pair)* "}"   # the text follows the rule `root`
//     pair  ::= [a-z]+ ":" ([0-9]{1,3} | [^"\\\n] | .)
//
// Strings and classes know the escapes \n \r \t \\ \" \[ \] \x41 \u0041 \U00000041, of code
// points. A rule ends with its line; lines go on inside of parentheses and after '|'.
//
// Refused, each by its name: rules that are left-recursive (also behind what may be empty), rules
// that are not defined or defined twice, repetitions above 10000, tokens such as <think>.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/grammar.h"

namespace weft::grammar {

inline constexpr size_t kMostGbnfBytes = 1 << 20;

// kUsage with the line and the column of what is wrong, and errors of GrammarBuilder::Build.
Result<GrammarPtr> GrammarFromGbnf(std::string_view text, const CompileLimits& limits = {});

}  // namespace weft::grammar
