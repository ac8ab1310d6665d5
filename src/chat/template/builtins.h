// Built-in functions, methods, filters and tests of templates, with the behavior of jinja2 as
// configured by transformers: tojson is json.dumps without HTML escapes, and lists and dicts are
// immutable. An unknown name fails with kUnsupported only when it is called, so a template may use
// it in a branch that is not taken.
#pragma once

#include <string_view>

#include "chat/template/interpreter.h"

namespace weft::chat::jinja {

// Whether `name` is range, namespace, dict, raise_exception or strftime_now.
bool IsFunction(std::string_view name);
Value CallFunction(Interpreter& in, std::string_view name, const CallValues& values);

// The method's name as a view of static storage; empty if the value has no such method.
std::string_view MethodName(const Value& self, std::string_view name);
Value CallMethod(Interpreter& in, const Value& self, std::string_view name,
                 const CallValues& values);

Value ApplyFilter(Interpreter& in, std::string_view name, const Value& of,
                  const CallValues& values);
bool ApplyTest(Interpreter& in, std::string_view name, const Value& of, const CallValues& values);

}  // namespace weft::chat::jinja
