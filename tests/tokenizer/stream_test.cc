#include "tokenizer/stream.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "support/tiny_vocabulary.h"

namespace weft::tokenizer {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

std::unique_ptr<Tokenizer> Bytes() {
    return Tokenizer::Make(TinyBytePair()).value();
}

// Outputs of one decoder for one byte at a time, and the flushed rest.
std::vector<std::string> Pushed(std::string_view bytes) {
    const auto tokenizer = Bytes();
    StreamDecoder decoder(*tokenizer);
    std::vector<std::string> out;
    for (const char c : bytes) out.push_back(decoder.Push(static_cast<uint8_t>(c)));
    out.push_back(decoder.Flush());
    return out;
}

std::string Joined(std::string_view bytes) {
    std::string text;
    for (const std::string& part : Pushed(bytes)) text += part;
    return text;
}

TEST(Stream, WholeCodePointsOnly) {
    using Parts = std::vector<std::string>;
    EXPECT_EQ(Pushed("a\xC3\xA9"), (Parts{"a", "", "\xC3\xA9", ""}));
    EXPECT_EQ(Pushed("\xF0\x9F\x98\x80"), (Parts{"", "", "", "\xF0\x9F\x98\x80", ""}));
    EXPECT_EQ(Pushed("\xE2\x82"), (Parts{"", "", kBad}));
    EXPECT_EQ(Pushed("\xE2\x82"
                     "a"),
              (Parts{"", "", std::string(kBad) + "a", ""}));
    EXPECT_EQ(Pushed("\xFF"), (Parts{kBad, ""}));
    EXPECT_EQ(Pushed(""), (Parts{""}));
}

// Table 3-8 of the Unicode standard, and neighboring cases.
TEST(Stream, MaximalSubparts) {
    const std::string bad = kBad;
    EXPECT_EQ(Joined("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
              "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
    EXPECT_EQ(Joined("\xC0\xAF"), bad + bad);
    EXPECT_EQ(Joined("\xED\xA0\x80"), bad + bad + bad);
    EXPECT_EQ(Joined("\xF4\x90\x80\x80"), bad + bad + bad + bad);
    EXPECT_EQ(Joined("\xE0\x80\x80"), bad + bad + bad);
}

TEST(Stream, AnySplitGivesTheSame) {
    std::mt19937 random(3);
    const auto tokenizer = Bytes();
    for (int round = 0; round < 3000; ++round) {
        std::string bytes;
        for (size_t n = random() % 12; n > 0; --n) {
            const char* often = "a\xE2\x82\xAC\xF0\x9F\x98\x80\xC3\xA9";
            bytes += random() % 4 ? often[random() % 10] : static_cast<char>(random());
        }
        StreamDecoder decoder(*tokenizer);
        std::string text;
        for (const char c : bytes) {
            const std::string part = decoder.Push(static_cast<uint8_t>(c));
            EXPECT_TRUE(IsUtf8(part));
            text += part;
        }
        text += decoder.Flush();
        EXPECT_TRUE(IsUtf8(text));
        EXPECT_EQ(text == bytes, IsUtf8(bytes));
        EXPECT_EQ(text.find(kBad) == text.npos, IsUtf8(bytes));
    }
}

TEST(Stream, SpecialTokens) {
    const auto tokenizer = Bytes();
    StreamDecoder hides(*tokenizer);
    EXPECT_EQ(hides.Push(0xC3), "");
    EXPECT_EQ(hides.Push(258), "");
    EXPECT_EQ(hides.Push(0xA9), "\xC3\xA9");
    StreamDecoder shows(*tokenizer, false);
    EXPECT_EQ(shows.Push(258), "<|im_end|>");
    EXPECT_EQ(shows.Push(100000), "");
    EXPECT_EQ(shows.Flush(), "");
}

TEST(Utf8, EveryCodePointAndNothingElse) {
    size_t valid = 0;
    for (uint32_t lead = 0; lead < 0x10000; ++lead) {
        const std::string two = {static_cast<char>(lead >> 8), static_cast<char>(lead)};
        valid += CodePointLength(two, 0) == 2;
    }
    EXPECT_EQ(valid, 0x800u - 0x80u);
    valid = 0;
    for (uint32_t bytes = 0xE00000; bytes < 0xF00000; ++bytes) {
        const std::string three = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8),
                                   static_cast<char>(bytes)};
        valid += CodePointLength(three, 0) == 3;
    }
    EXPECT_EQ(valid, 0x10000u - 0x800u - 0x800u);
}

}  // namespace
}  // namespace weft::tokenizer
