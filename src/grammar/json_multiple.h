// Multiples of a number, in JSON without an exponent.
#pragma once

#include "grammar/text_automaton.h"

namespace weft::grammar {

// An automaton of the digit strings, with optional sign and decimal point, whose value is a
// multiple of `step`; its states are remainders. The strings need not be valid JSON numbers.
// kUsage: `step` is not above 0. kUnsupported: more than 6 decimals, digits above 2000, or the
// budget does not suffice.
Result<TextAutomaton> MultiplesOf(double step, TextBudget& budget);

}  // namespace weft::grammar
