// Characters that control a terminal are escaped; all others stay.
#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace weft {
namespace {

TEST(Printable, EscapesTerminalControls) {
    EXPECT_EQ(Printable("blk.0.attn_q.weight"), "blk.0.attn_q.weight");
    EXPECT_EQ(Printable("\x1b[31ma\nb\rc\td\x7f"), "\\x1b[31ma\\nb\\rc\\td\\x7f");
    EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
    EXPECT_EQ(Printable("C:\\dir \"é\" 語 🙂"), "C:\\dir \"é\" 語 🙂");
    // U+009B starts a command like ESC [; U+202E reverses the direction of the following text.
    EXPECT_EQ(Printable("\xc2\x9b"
                        "31m"),
              "\\xc2\\x9b31m");
    EXPECT_EQ(Printable("a\xe2\x80\xae"
                        "b"),
              "a\\u202eb");
    EXPECT_EQ(Printable("\xe2\x80\xa8"), "\\u2028");
    EXPECT_EQ(PrintableLines("a\n\tb\x1b\r\n"), "a\n\tb\\x1b\\r\n");
}

TEST(Printable, IsUtf8WhateverTheBytes) {
    EXPECT_EQ(Printable("\xff\xc3("), "\\xff\\xc3(");
    EXPECT_EQ(Printable("\xe8\xaa"), "\\xe8\\xaa");
    std::string bytes;
    uint32_t seed = 1;
    for (int i = 0; i < 20'000; ++i) bytes += static_cast<char>((seed = seed * 48271u) >> 16);
    const std::string shown = Printable(bytes);
    EXPECT_TRUE(IsUtf8(shown));
    EXPECT_EQ(Printable(shown), shown);
    for (const char c : shown) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace
}  // namespace weft
