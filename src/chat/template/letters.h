// Properties and case mappings of Unicode code points, as Python's str defines them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::chat::jinja {

bool IsSpace(int32_t point);
// Whether repr() shows the character unescaped.
bool IsPrintable(int32_t point);
bool IsAlpha(int32_t point);
bool IsUpper(int32_t point);
bool IsLower(int32_t point);
bool IsTitle(int32_t point);  // a digraph whose first letter alone is upper case
inline bool IsCased(int32_t point) {
    return IsUpper(point) || IsLower(point) || IsTitle(point);
}
// Whether a word continues after the character: an apostrophe, an accent.
bool IsCaseIgnorable(int32_t point);
bool IsDecimal(int32_t point);
bool IsDigit(int32_t point);
bool IsNumeric(int32_t point);
inline bool IsAlphaNumeric(int32_t point) {
    return IsAlpha(point) || IsNumeric(point);
}
// 0 to 9. Precondition: IsDecimal(point).
int DecimalValue(int32_t point);

// One to three code points.
struct Points {
    static constexpr size_t kMost = 4;
    int32_t at[kMost];
    size_t size;
};
// Full mappings of one character ("ß" to "SS"), without the rule for a final sigma.
Points ToUpper(int32_t point);
Points ToLower(int32_t point);
Points ToTitle(int32_t point);
Points ToFolded(int32_t point);

}  // namespace weft::chat::jinja
