#include "grammar/schema_formats.h"

namespace weft::grammar {
namespace {

// 29 February in years that 4 divides, but of the hundreds only those that 400 divides.
#define WEFT_DATE                                                                            \
    "(?:[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|" \
    "[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|"   \
    "(?:[2468][048]|[13579][26])00)-02-29)"
#define WEFT_TIME                                                      \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:" \
    "[01]\\d|2[0-3]):[0-5]\\d)"
#define WEFT_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define WEFT_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

constexpr struct {
    std::string_view format, pattern;
} kFormats[] = {
    {"date", "^" WEFT_DATE "$"},
    {"time", "^" WEFT_TIME "$"},
    {"date-time", "^" WEFT_DATE "T" WEFT_TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,31})?@" WEFT_LABEL "(?:\\." WEFT_LABEL "){1,3}$"},
    {"ipv4", "^" WEFT_OCTET "(?:\\." WEFT_OCTET "){3}$"},
};

}  // namespace

std::string_view PatternOfFormat(std::string_view format) {
    for (const auto& known : kFormats) {
        if (known.format == format) return known.pattern;
    }
    return {};
}

}  // namespace weft::grammar
