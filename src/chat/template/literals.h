// Parsers for calls that models write in notations other than JSON: Python function calls (OLMo 3,
// Llama's "pythonic" format) and Gemma 4's format. Values become JSON.
//
// Limits: nesting of 100, 262144 values per text. Text that is not entirely of the format gives
// nullopt.
#pragma once

#include <string_view>

#include "chat/answer_calls.h"

namespace weft::chat {

// One or more calls "f(a=1, b='x')" separated by line ends, "," or ";", optionally in a list.
// Values: numbers (also 0x1F), strings (also r"..." and adjacent ones), lists, dicts, True, False,
// None (or true, false, null). Arguments must be named. raw: a string argument between single
// quotes has no escapes and may contain quotes (LFM 2.5); it ends where the next argument, the next
// call or the end follows.
Calls ReadPythonCalls(std::string_view text, bool raw = false);

// Parses a value such as {'a': [1, True]}; returns a discarded value on error.
OrderedJson ReadPythonValue(std::string_view text);

inline constexpr std::string_view kGemmaQuote = "<|\"|>";     // Gemma 4
inline constexpr std::string_view kEscapeQuote = "<escape>";  // FunctionGemma
// "call:f{a:1,b:<|"|>x<|"|>}": keys are bare or quoted; values are numbers, strings between two
// `quote` or JSON quotes, true, false, null, lists and objects.
Calls ReadGemmaCall(std::string_view text, std::string_view quote);

}  // namespace weft::chat
