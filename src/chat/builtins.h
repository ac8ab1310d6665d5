// What templates can call: functions, methods of values, filters and tests. Each behaves as in
// jinja2 as transformers sets it up: tojson is json.dumps without HTML escapes, lists and dicts
// can't be changed. Unknown names fail with kUnsupported when they are called, so that a template
// may have them on a path that isn't taken.
#pragma once

#include <string_view>

#include "chat/interpreter.h"

namespace weft::chat::jinja {

// range, namespace, dict, raise_exception, strftime_now.
bool IsFunction(std::string_view name);
Value CallFunction(Interpreter& in, std::string_view name, const CallValues& values);

// The method of this name that a value has, in words that live for ever; empty: none.
std::string_view MethodName(const Value& self, std::string_view name);
Value CallMethod(Interpreter& in, const Value& self, std::string_view name,
                 const CallValues& values);

Value ApplyFilter(Interpreter& in, std::string_view name, const Value& of,
                  const CallValues& values);
bool ApplyTest(Interpreter& in, std::string_view name, const Value& of, const CallValues& values);

}  // namespace weft::chat::jinja
