#include "chat/template/letters.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>

namespace weft::chat::jinja {
namespace {

struct PointRange {
    int32_t first, last;
};

// Other_Uppercase and Other_Lowercase of PropList.txt.
constexpr PointRange kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr PointRange kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
// Word_Break=MidLetter, MidNumLet and Single_Quote: case-ignorable, unlike others of their
// category.
constexpr PointRange kInsideWords[] = {
    {0x27, 0x27},     {0x2E, 0x2E},     {0x3A, 0x3A},     {0xB7, 0xB7},
    {0x387, 0x387},   {0x55F, 0x55F},   {0x5F4, 0x5F4},   {0x2018, 0x2019},
    {0x2024, 0x2024}, {0x2027, 0x2027}, {0xFE13, 0xFE13}, {0xFE52, 0xFE52},
    {0xFE55, 0xFE55}, {0xFF07, 0xFF07}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1A}};
// Numeric_Type=Digit: in circles, raised and lowered.
constexpr PointRange kOtherDigits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
// Letters with a numeric value: kPrimaryNumeric, kAccountingNumeric and kOtherNumeric of Unihan.
constexpr std::u32string_view kNumerals =
    U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4E96\u4EBF\u4EC0"
    U"\u4EDF\u4EE8\u4F0D\u4F70\u5104\u5146\u5169\u516B\u516D\u5341\u5343\u5344\u5345\u534C"
    U"\u53C1\u53C2\u53C3\u53C4\u56DB\u58F1\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10"
    U"\u62FE\u634C\u67D2\u6F06\u7396\u767E\u8086\u842C\u8CAE\u8CB3\u8D30\u9621\u9646\u964C"
    U"\u9678\u96F6\uF96B\uF973\uF978\uF9B2\uF9D1\uF9D3\uF9FD\U00020001\U00020064\U000200E2"
    U"\U00020121\U0002092A\U00020983\U0002098C\U0002099C\U00020AEA\U00020AFD\U00020B19"
    U"\U00022390\U00022998\U00023B1B\U0002626D\U0002F890";

template <size_t kSize>
bool Among(const PointRange (&ranges)[kSize], int32_t point) {
    const auto* found =
        std::partition_point(std::begin(ranges), std::end(ranges),
                             [&](const PointRange& range) { return range.last < point; });
    return found != std::end(ranges) && found->first <= point;
}

utf8proc_category_t Category(int32_t point) {
    return utf8proc_category(point);
}

Points One(int32_t point) {
    return {{point}, 1};
}

}  // namespace

bool IsSpace(int32_t point) {
    if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x20);
    return point == 0x85 || Category(point) == UTF8PROC_CATEGORY_ZS || point == 0x2028 ||
           point == 0x2029;
}

bool IsPrintable(int32_t point) {
    if (point < 0x80) return point >= 0x20 && point < 0x7F;
    switch (Category(point)) {
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS: return false;
        default: return true;  // an enum of the library
    }
}

bool IsAlpha(int32_t point) {
    const auto category = Category(point);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsUpper(int32_t point) {
    return Category(point) == UTF8PROC_CATEGORY_LU || Among(kOtherUpper, point);
}

bool IsLower(int32_t point) {
    return Category(point) == UTF8PROC_CATEGORY_LL || Among(kOtherLower, point);
}

bool IsTitle(int32_t point) {
    return Category(point) == UTF8PROC_CATEGORY_LT;
}

bool IsCaseIgnorable(int32_t point) {
    switch (Category(point)) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK: return true;
        default: return Among(kInsideWords, point);  // an enum of the library
    }
}

bool IsDecimal(int32_t point) {
    return Category(point) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(int32_t point) {
    return IsDecimal(point) || Among(kOtherDigits, point);
}

bool IsNumeric(int32_t point) {
    const auto category = Category(point);
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return true;
    return category == UTF8PROC_CATEGORY_LO &&
           kNumerals.find(static_cast<char32_t>(point)) != kNumerals.npos;
}

// Decimal digits form runs of ten, each from 0 to 9; runs may touch.
int DecimalValue(int32_t point) {
    int32_t first = point;
    while (IsDecimal(first - 1)) --first;
    return (point - first) % 10;
}

Points ToFolded(int32_t point) {
    Points folded{};
    int boundary = 0;
    const auto size =
        utf8proc_decompose_char(point, folded.at, Points::kMost, UTF8PROC_CASEFOLD, &boundary);
    if (size < 1 || static_cast<size_t>(size) > Points::kMost) return One(point);
    folded.size = static_cast<size_t>(size);
    return folded;
}

// Unicode's special mappings follow from the folded form of the character, which has the same
// number of code points.
Points ToUpper(int32_t point) {
    Points mapped = ToFolded(point);
    if (mapped.size == 1 || Category(point) == UTF8PROC_CATEGORY_LU) {
        return One(utf8proc_toupper(point));
    }
    for (size_t i = 0; i < mapped.size; ++i) mapped.at[i] = utf8proc_toupper(mapped.at[i]);
    return mapped;
}

Points ToLower(int32_t point) {
    constexpr int32_t kDottedI = 0x130;
    return point == kDottedI ? ToFolded(point) : One(utf8proc_tolower(point));
}

Points ToTitle(int32_t point) {
    constexpr int32_t kIota = 0x3B9, kIotaBelow = 0x345;
    Points mapped = ToFolded(point);
    const int32_t simple = utf8proc_totitle(point);
    const bool own = simple != point && ToFolded(simple).size == mapped.size && IsTitle(simple);
    if (mapped.size == 1 || own || IsUpper(point) || IsTitle(point)) return One(simple);
    bool first = true;
    for (size_t i = 0; i < mapped.size; ++i) {
        if (first && IsCased(mapped.at[i])) {
            mapped.at[i] = utf8proc_totitle(mapped.at[i]);
            first = false;
        } else if (mapped.at[i] == kIota) {
            mapped.at[i] = kIotaBelow;
        }
    }
    return mapped;
}

}  // namespace weft::chat::jinja
