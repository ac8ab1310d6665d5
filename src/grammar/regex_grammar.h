// Grammars from regular expressions in the dialect of ECMA-262 (with the flag u), which JSON schema
// takes: literals, . \d \w \s \D \W \S, [classes], (groups), (?:groups), (?<named>groups), |,
// * + ? {m} {m,} {m,n} with their lazy forms (which match the same texts), and the escapes
// \n \r \t \f \v \0 \xHH \uHHHH \u{H...} and of punctuation. \d and \w are ASCII, \s is Unicode's
// white space, . is anything but the line ends U+000A, U+000D, U+2028 and U+2029.
//
// ^ and $ may stand at the ends of the expression, and at those of its alternatives. Behind the ^
// of an expression without alternatives there may be look-ahead, (?=...) and (?!...).
//
// Refused by name: other look-ahead, look-behind, back-references, word boundaries, possessive and
// atomic groups, flags, \p classes, POSIX classes, and what dialects read differently.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/builder.h"
#include "grammar/grammar.h"
#include "grammar/text_automaton.h"

namespace weft::grammar {

inline constexpr size_t kMostRegexBytes = 1 << 16;

// The whole text matches. kUsage names the place (a byte of the expression) and what is there;
// kUnsupported, too, where it is an expression, but not one of these, or one whose look-ahead takes
// too large an automaton.
Result<GrammarPtr> GrammarFromRegex(std::string_view pattern, const CompileLimits& limits = {});

// For grammars around it.
struct RegexForm {
    // Without a ^ (or $) anything may come before (or after), as JSON schema has it.
    bool search = false;
    // But for the begin, as if each alternative had its ^.
    bool begun = false;
    // The text stands inside of a JSON string: what must be escaped there is.
    bool json_string = false;
};
Result<GrammarBuilder::Expr> ExprFromRegex(std::string_view pattern, const RegexForm& form,
                                           GrammarBuilder& builder);
// Whether it begins with look-ahead, which takes an automaton.
bool HasLookAhead(std::string_view pattern);
// The texts that it matches (with `search`, in the sense of RegexForm). kUnsupported: too large.
Result<TextAutomaton> TextsOfRegex(std::string_view pattern, bool search, TextBudget& budget);

}  // namespace weft::grammar
