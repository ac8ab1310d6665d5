#include "grammar/schema_formats.h"

#include <algorithm>
#include <iterator>

namespace weft::grammar {
namespace {

// 29 February exists in years divisible by 4, except centuries not divisible by 400.
#define WEFT_DATE                                                                            \
    "(?:[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|" \
    "[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|"   \
    "(?:[2468][048]|[13579][26])00)-02-29)"
#define WEFT_TIME                                                      \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:" \
    "[01]\\d|2[0-3]):[0-5]\\d)"
#define WEFT_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define WEFT_LABEL_OF(inner) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," inner "}[A-Za-z0-9])?"
#define WEFT_LABEL WEFT_LABEL_OF("61")
// All alternatives have at most 253 bytes.
#define WEFT_HOSTNAME                                                                   \
    "(?:(?:" WEFT_LABEL "\\.){0,2}" WEFT_LABEL "|(?:" WEFT_LABEL                        \
    "\\.){3}" WEFT_LABEL_OF("59") "|(?:" WEFT_LABEL_OF("28") "\\.){0,7}" WEFT_LABEL_OF( \
        "28") "|(?:" WEFT_LABEL_OF("24") "\\.){0,2}" WEFT_LABEL                         \
                                         "(?:\\." WEFT_LABEL_OF("24") "){1,5})"
// A local part of RFC 5321 has at most 64 bytes. A word does not end with an apostrophe, which
// zod refuses there.
#define WEFT_WORD(inner) "[A-Za-z0-9_'+-]{0," inner "}[A-Za-z0-9_+-]"
#define WEFT_MAILBOX \
    "(?:" WEFT_WORD("63") "|" WEFT_WORD("31") "\\." WEFT_WORD("30") "|(?:"   \
    WEFT_WORD("19") "\\.){2}" WEFT_WORD("19") "|(?:" WEFT_WORD("14") "\\.)"  \
    "{3}" WEFT_WORD("14") ")"
// dur-time and dur-date of RFC 3339, appendix A. Each unit is followed only by the next smaller
// one.
#define WEFT_SECONDS "\\d{1,9}S"
#define WEFT_MINUTES "\\d{1,9}M(?:" WEFT_SECONDS ")?"
#define WEFT_HOURS "\\d{1,9}H(?:" WEFT_MINUTES ")?"
#define WEFT_DURATION_TIME "T(?:" WEFT_HOURS "|" WEFT_MINUTES "|" WEFT_SECONDS ")"
#define WEFT_DAYS "\\d{1,9}D"
#define WEFT_MONTHS "\\d{1,9}M(?:" WEFT_DAYS ")?"
#define WEFT_YEARS "\\d{1,9}Y(?:" WEFT_MONTHS ")?"
#define WEFT_DURATION_DATE \
    "(?:" WEFT_DAYS "|" WEFT_MONTHS "|" WEFT_YEARS ")(?:" WEFT_DURATION_TIME ")?"
// IPv6address of RFC 5954, line by line: h16 and ls32.
#define WEFT_H16 "[0-9A-Fa-f]{1,4}"
#define WEFT_IPV4 WEFT_OCTET "(?:\\." WEFT_OCTET "){3}"
#define WEFT_LS32 "(?:" WEFT_H16 ":" WEFT_H16 "|" WEFT_IPV4 ")"
#define WEFT_H16S(most) "(?:(?:" WEFT_H16 ":){0," most "}" WEFT_H16 ")?::"
#define WEFT_IPV6                                                                                 \
    "(?:(?:" WEFT_H16 ":){6}" WEFT_LS32 "|::(?:" WEFT_H16 ":){5}" WEFT_LS32 "|(?:" WEFT_H16       \
    ")?::(?:" WEFT_H16 ":){4}" WEFT_LS32                                                          \
    "|" WEFT_H16S("1") "(?:" WEFT_H16 ":){3}" WEFT_LS32                                           \
                       "|" WEFT_H16S("2") "(?:" WEFT_H16 ":){2}" WEFT_LS32 "|" WEFT_H16S("3")     \
                           WEFT_H16 ":" WEFT_LS32 "|" WEFT_H16S("4") WEFT_LS32 "|" WEFT_H16S("5") \
                               WEFT_H16 "|" WEFT_H16S("6") ")"
// URI of RFC 3986, appendix A: pchar, and reg-name, which includes IPv4address.
#define WEFT_ESCAPED "%[0-9A-Fa-f]{2}"
#define WEFT_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" WEFT_ESCAPED ")"
#define WEFT_USER "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" WEFT_ESCAPED ")*@)?"
#define WEFT_NAME "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" WEFT_ESCAPED ")*"
#define WEFT_HOST "(?:\\[" WEFT_IPV6 "\\]|" WEFT_NAME ")"
#define WEFT_PATH "(?:/" WEFT_PCHAR "*)*"
#define WEFT_QUERY "(?:[/?]|" WEFT_PCHAR ")*"
#define WEFT_BEHIND_HOST "(?:\\?" WEFT_QUERY ")?(?:#" WEFT_QUERY ")?"
#define WEFT_NO_HOST "/(?:" WEFT_PCHAR "+" WEFT_PATH ")?|" WEFT_PCHAR "+" WEFT_PATH
#define WEFT_URI                                                                                \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" WEFT_USER WEFT_HOST "(?::\\d*)?" WEFT_PATH "|" WEFT_NO_HOST \
    ")?" WEFT_BEHIND_HOST
// A subset with few states per length: no user, plain host names, and no path that begins with "/"
// without a host.
#define WEFT_PLAIN_HOST "//[A-Za-z0-9._~-]*(?::\\d*)?"
#define WEFT_COUNTED_URI                                                      \
    "[A-Za-z][A-Za-z0-9+.-]{0,20}:(?:" WEFT_PLAIN_HOST "|(?:" WEFT_PLAIN_HOST \
    "[/?]|[A-Za-z0-9._~!$&'()*+,;=:@-])" WEFT_QUERY "(?:#" WEFT_QUERY ")?)"
#define WEFT_UUID(version) \
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" version "[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
#define WEFT_BASE64 "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

constexpr struct {
    std::string_view format, pattern;
} kFormats[] = {
    {"date", "^" WEFT_DATE "$"},
    {"time", "^" WEFT_TIME "$"},
    {"date-time", "^" WEFT_DATE "T" WEFT_TIME "$"},
    {"uuid", WEFT_UUID("[0-9a-fA-F]")},
    {"uuid1", WEFT_UUID("1")},
    {"uuid3", WEFT_UUID("3")},
    {"uuid4", WEFT_UUID("4")},
    {"uuid5", WEFT_UUID("5")},
    {"uuid6", WEFT_UUID("6")},
    {"uuid7", WEFT_UUID("7")},
    {"uuid8", WEFT_UUID("8")},
    {"email", "^" WEFT_MAILBOX "@" WEFT_LABEL "(?:\\." WEFT_LABEL "){1,3}$"},
    {"ipv4", "^" WEFT_IPV4 "$"},
    {"ipv6", "^" WEFT_IPV6 "$"},
    {"hostname", "^(?!(?:[!-~]*\\.)?\\d+$)" WEFT_HOSTNAME "$"},
    {"duration", "^P(?:" WEFT_DURATION_DATE "|" WEFT_DURATION_TIME "|\\d{1,9}W)$"},
    {"uri", "^" WEFT_URI "$"},
    {"ipvanyaddress", "^(?:" WEFT_IPV4 "|" WEFT_IPV6 ")$"},
    {"base64", WEFT_BASE64},
    {"byte", WEFT_BASE64},
    {"base64url", "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?$"},
};
constexpr std::string_view kCountedUri = "^" WEFT_COUNTED_URI "$";

}  // namespace

std::string_view PatternOfFormat(std::string_view format, bool counted) {
    if (counted && format == "uri") return kCountedUri;
    for (const auto& known : kFormats) {
        if (known.format == format) return known.pattern;
    }
    return {};
}

bool IsHint(std::string_view format) {
    constexpr std::string_view kHints[] = {"password", "binary", "path", "file-path",
                                           "directory-path"};
    return std::ranges::find(kHints, format) != std::end(kHints);
}

}  // namespace weft::grammar
