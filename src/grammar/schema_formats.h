// The values of JSON schema's `format` that grammars know, as regular expressions: date, time,
// date-time (RFC 3339; years from 1000 on), uuid, email, ipv4. For others `format` says
// nothing about which values there are, as the specification has it.
#pragma once

#include <string_view>

namespace weft::grammar {

// Anchored; empty for formats that are not among them.
std::string_view PatternOfFormat(std::string_view format);

}  // namespace weft::grammar
