// Numbers that are multiples of another, as JSON writes them without an exponent.
#pragma once

#include "grammar/text_automaton.h"

namespace weft::grammar {

// Digit strings, with a sign and a point or not, whose value is a multiple of `step`: an automaton
// that keeps the remainder. Which of them are numbers of JSON is for another to say.
// kUsage: `step` is not above 0. kUnsupported: it has more than 6 digits behind the point, or its
// digits are above 2000, or the automaton is more than the budget has left.
Result<TextAutomaton> MultiplesOf(double step, TextBudget& budget);

}  // namespace weft::grammar
