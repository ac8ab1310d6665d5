// Tokens to a syntax tree, by the grammar of jinja2's documentation ("Template Designer").
#pragma once

#include <string_view>

#include "chat/ast.h"

namespace weft::chat::jinja {

// Throws Failure: kCorrupt for what is no template, kUnsupported for statements that chat
// templates have no use for (include, extends, ...); both name the line.
Body ParseTemplate(std::string_view source);

}  // namespace weft::chat::jinja
