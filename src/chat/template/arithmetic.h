// Operators with Python's semantics: floor division and modulo round down, int / int gives a float,
// + concatenates, * repeats, % also formats. Integers have 64 bits; an overflow is kUnsupported.
#pragma once

#include "chat/template/ast.h"
#include "chat/template/interpreter.h"

namespace weft::chat::jinja {

// Precondition: no operand is undefined.
Value Negate(Meter& meter, const Value& of);
Value Calculate(Meter& meter, BinaryOp op, const Value& left, const Value& right);

// "%s: %d" % values, with a tuple or a single value.
Value FormatPercent(Meter& meter, const Text& format, const Value& values);
// "{} {1} {name}".format(...); format specifications are not supported.
Value FormatBraces(Meter& meter, const Text& format, const CallValues& values);

}  // namespace weft::chat::jinja
