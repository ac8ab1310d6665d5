// Calls that models write in other notations than JSON: as Python calls its functions (OLMo 3,
// Llama's "pythonic" form), and as Gemma 4 has it. What they call becomes JSON.
//
// Bounds: values nest at most 100 deep, a text holds at most 262144 of them. A text that is not
// wholly of the form gives nothing.
#pragma once

#include <string_view>

#include "chat/answer_calls.h"

namespace weft::chat {

// "f(a=1, b='x')", one or several with line ends, "," or ";" between, also as a list in brackets.
// Values: numbers, texts, lists, dicts, True, False, None (true, false, null). Arguments have
// names.
Calls ReadPythonCalls(std::string_view text);

// A value such as {'a': [1, True]}; discarded where it is none.
OrderedJson ReadPythonValue(std::string_view text);

// "call:f{a:1,b:<|"|>x<|"|>}": keys are bare or quoted, values numbers, texts between <|"|> (or
// in quotes, as JSON has them), true, false, null, lists and objects.
Calls ReadGemmaCall(std::string_view text);

}  // namespace weft::chat
