// Grammars from regular expressions in the dialect of ECMA-262 (flag u), which JSON schema uses:
// literals, . \d \w \s \D \W \S, [classes], (groups), (?:groups), (?<named>groups), |, * + ? {m}
// {m,} {m,n} and their lazy forms (which match the same texts), and the escapes \n \r \t \f \v \0
// \xHH \uHHHH \u{H...} and escaped punctuation. \d and \w are ASCII; \s is Unicode's white space; .
// excludes the line ends U+000A, U+000D, U+2028 and U+2029.
//
// ^ and $ may be at the ends of the expression and of its alternatives. After the ^ of an
// expression without alternatives, look-aheads (?=...) and (?!...) are allowed.
//
// Rejected with a specific error: other look-ahead, look-behind, back-references, word boundaries,
// possessive and atomic groups, flags, \p classes, POSIX classes, and syntax that dialects
// interpret differently.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/builder.h"
#include "grammar/grammar.h"
#include "grammar/text_automaton.h"

namespace weft::grammar {

inline constexpr size_t kMostRegexBytes = 1 << 16;

// A grammar of the texts that match entirely. kUsage: invalid expression; the message has the byte
// offset. kUnsupported: an unsupported construct, or look-ahead with too large an automaton.
Result<GrammarPtr> GrammarFromRegex(std::string_view pattern, const CompileLimits& limits = {});

// Options for use inside other grammars.
struct RegexForm {
    // Without ^ or $, any text may come before or after the match (as in JSON schema).
    bool search = false;
    // Treats each alternative as if it began with ^.
    bool begun = false;
    // The text is inside a JSON string: characters are escaped as required.
    bool json_string = false;
};
Result<GrammarBuilder::Expr> ExprFromRegex(std::string_view pattern, const RegexForm& form,
                                           GrammarBuilder& builder);
// Whether the expression begins with look-ahead and therefore needs an automaton.
bool HasLookAhead(std::string_view pattern);
// The texts that match (`search` as in RegexForm). kUnsupported: too large.
Result<TextAutomaton> TextsOfRegex(std::string_view pattern, bool search, TextBudget& budget);

}  // namespace weft::grammar
