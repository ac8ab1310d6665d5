#include "formats/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "formats/tokenizer_stream.h"
#include "support/tiny_vocabulary.h"

namespace weft::formats {
namespace {

std::unique_ptr<Tokenizer> Made(TokenizerData data) {
    auto made = Tokenizer::Make(std::move(data));
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(made).value() : nullptr;
}

std::vector<int32_t> Ids(const std::string& bytes) {
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    return ids;
}

TEST(BytePair, MergesByRankThenFromTheLeft) {
    const auto tokenizer = Made(TinyBytePair({"a a", "aa a", "b c", "a b"}));
    EXPECT_EQ(tokenizer->Encode("aaa"), (std::vector<int32_t>{257}));
    EXPECT_EQ(tokenizer->Encode("aaaa"), (std::vector<int32_t>{256, 256}));
    EXPECT_EQ(tokenizer->Encode("aaaaa"), (std::vector<int32_t>{256, 257}));
    EXPECT_EQ(tokenizer->Encode("abc"), (std::vector<int32_t>{'a', 258}));
    EXPECT_EQ(tokenizer->Encode("ab"), (std::vector<int32_t>{259}));
    EXPECT_TRUE(tokenizer->Encode("").empty());
}

TEST(BytePair, AnyBytesComeBack) {
    std::mt19937 random(1);
    const auto tokenizer = Made(TinyBytePair({"a a", "\xC3\x83 \xC2\xA9", "\xC4\xA0 a"}));
    for (int round = 0; round < 2000; ++round) {
        std::string text;
        for (size_t n = random() % 40; n > 0; --n) {
            const char* often = "aa \xC3\xA9\n'\xE2\x82\xAC";
            text += random() % 2 ? often[random() % 10] : static_cast<char>(random());
        }
        EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    }
}

TEST(Spm, FallsBackToBytes) {
    const auto tokenizer = Made(TinySpm({"\xE2\x96\x81", "a", "b", "ab",
                                         "\xE2\x96\x81"
                                         "ab"}));
    EXPECT_EQ(tokenizer->Encode("ab"), (std::vector<int32_t>{1, 263}));
    EXPECT_EQ(tokenizer->Encode("ab\n"), (std::vector<int32_t>{1, 263, 3 + '\n'}));
    EXPECT_EQ(tokenizer->Encode("\xFF"), (std::vector<int32_t>{1, 259, 3 + 0xFF}));
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(" ab\xFF\n")), " ab\xFF\n");
}

TEST(Special, OnlyOnRequest) {
    const auto tokenizer = Made(TinyBytePair());
    const std::string text = "a<|im_end|>b";
    EXPECT_EQ(tokenizer->Encode(text), Ids(text));
    EXPECT_EQ(tokenizer->Encode(text, {.parse_special = true}),
              (std::vector<int32_t>{'a', 258, 'b'}));
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{'a', 258, 'b'}), "ab");
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{'a', 258, 'b'}, false), text);
    EXPECT_TRUE(tokenizer->IsEog(258));
    EXPECT_TRUE(tokenizer->IsEog(256));
    EXPECT_FALSE(tokenizer->IsEog(257));
}

}  // namespace
}  // namespace weft::formats
