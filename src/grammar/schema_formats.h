// Regular expressions for the supported values of JSON schema's `format`:
//
//     date, time, date-time   RFC 3339; years from 1000 on
//     duration                RFC 3339, appendix A; numbers of at most 9 digits
//     uuid, uuid1 to uuid8    RFC 9562, any version or the named one (no uuid2)
//     email                   the local part in one or two words of A-Za-z0-9_+-, 2 to 4 labels
//     hostname                RFC 1123, section 2.1: labels of 1 to 63 letters, digits and inner
//                             hyphens. To stay below 254 bytes, a name has at most 3 labels, or 4
//                             of which the last has at most 61 bytes, or 8 of at most 30. The
//                             last label is not a number
//     ipv4                    four numbers up to 255 without leading zeros
//     ipv6                    RFC 4291, section 2.2, in the grammar of RFC 5954; without a zone
//     ipvanyaddress           pydantic's: ipv4 or ipv6
//     uri                     RFC 3986, section 3, with a scheme. With length limits: a scheme of
//                             at most 21, no user, and a plain host name
//     base64, byte, base64url RFC 4648, sections 4 and 5; padding is optional in base64url
#pragma once

#include <string_view>

namespace weft::grammar {

// PatternOfFormat returns an anchored expression; empty for unsupported formats. counted: the
// string also has length limits.
constexpr std::string_view kKnownFormats =
    "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri, base64, base64url";
std::string_view PatternOfFormat(std::string_view format, bool counted);
// Whether the format does not restrict the text: password, path and similar.
bool IsHint(std::string_view format);

}  // namespace weft::grammar
