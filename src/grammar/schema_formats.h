// The values of JSON schema's `format` that grammars know, as regular expressions:
//
//     date, time, date-time   RFC 3339; years from 1000 on
//     duration                RFC 3339, appendix A; numbers of at most 9 digits
//     uuid, uuid1 to uuid8    RFC 9562, of any version or that one (no uuid2)
//     email                   the local part in one or two words of A-Za-z0-9_+-, 2 to 4 labels
//     hostname                RFC 1123, section 2.1: labels of 1 to 63 letters, digits and inner
//                             hyphens, 253 bytes at most: 3 labels, or 4 of which the last has up
//                             to 61, or 8 of up to 30; the last is not a number
//     ipv4                    four numbers up to 255 without leading zeros
//     ipv6                    RFC 4291, section 2.2, in the grammar of RFC 5954; without a zone
//     ipvanyaddress           pydantic's: ipv4 or ipv6
//     uri                     RFC 3986, section 3, with a scheme. Where characters are counted: one
//                             of up to 21, without a user, and the host a plain name
//     base64, byte, base64url RFC 4648, sections 4 and 5; padding is a choice in the last
#pragma once

#include <string_view>

namespace weft::grammar {

// Anchored; empty for formats that are not among them. counted: beside bounds on its length.
constexpr std::string_view kKnownFormats =
    "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri, base64, base64url";
std::string_view PatternOfFormat(std::string_view format, bool counted);
// Formats that say nothing of what texts are allowed: password, path and their like.
bool IsHint(std::string_view format);

}  // namespace weft::grammar
