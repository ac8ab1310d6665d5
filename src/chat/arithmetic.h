// Operators on values, as Python has them: floor division and remainder go down, int / int is a
// float, + joins texts and lists, * repeats them, % also formats. Integers have 64 bits here; what
// would need more is kUnsupported.
#pragma once

#include "chat/ast.h"
#include "chat/interpreter.h"

namespace weft::chat::jinja {

// Precondition: none is undefined.
Value Negate(Meter& meter, const Value& of);
Value Calculate(Meter& meter, BinaryOp op, const Value& left, const Value& right);

// "%s: %d" % values: a tuple, or the one value.
Value FormatPercent(Meter& meter, const Text& format, const Value& values);
// "{} {1} {name}".format(...), without format specifications.
Value FormatBraces(Meter& meter, const Text& format, const CallValues& values);

}  // namespace weft::chat::jinja
