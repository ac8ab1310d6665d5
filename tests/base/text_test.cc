// Splitting, trimming and case of plain text, and times in UTC.
#include "base/text.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Pieces = std::vector<std::string_view>;

TEST(Text, Trims) {
    EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
    EXPECT_EQ(Trim("a"), "a");
    EXPECT_EQ(Trim(" \n"), "");
    EXPECT_EQ(Trim(""), "");
}

TEST(Text, Splits) {
    EXPECT_EQ(Lines("a\r\n\nb\n"), (Pieces{"a", "", "b"}));
    EXPECT_EQ(Lines("a\nb"), (Pieces{"a", "b"}));
    EXPECT_EQ(Words("  a\tb \n"), (Pieces{"a", "b"}));
    EXPECT_EQ(Words(" "), Pieces{});
    EXPECT_EQ(Split("a,,b,", ','), (Pieces{"a", "", "b", ""}));
    EXPECT_EQ(Split("", ','), Pieces{""});
}

TEST(Text, ChangesTheCaseOfAsciiOnly) {
    EXPECT_EQ(LowerCase("Q4_K-M [@Z{\xc3\x84"), "q4_k-m [@z{\xc3\x84");
    EXPECT_EQ(UpperCase("az{`\xc3\xa4 1"), "AZ{`\xc3\xa4 1");
}

TEST(Text, FormatsTimesInUtc) {
    EXPECT_EQ(UtcText(0, "%Y-%m-%dT%H:%M:%SZ"), "1970-01-01T00:00:00Z");
    EXPECT_EQ(UtcText(1'764'432'000, "%Y-%m-%d %H:%M"), "2025-11-29 16:00");
}

}  // namespace
}  // namespace weft
