// Parses a template to a syntax tree, following jinja2's documentation ("Template Designer").
#pragma once

#include <string_view>

#include "chat/template/ast.h"

namespace weft::chat::jinja {

// Throws Failure with the line: kCorrupt for an invalid template, kUnsupported for statements that
// chat templates do not need (include, extends, ...).
Body ParseTemplate(std::string_view source);

}  // namespace weft::chat::jinja
