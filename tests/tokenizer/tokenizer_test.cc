#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/deadline.h"
#include "support/limits.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/special.h"
#include "tokenizer/stream.h"

namespace weft::tokenizer {
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

TEST(BytePair, AnyBytesRoundTrip) {
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

// Llama 3 uses a word that is a token directly, even if no merges lead to it; but no word becomes a
// control token.
TEST(BytePair, WholeWords) {
    TokenizerData data = TinyBytePair({"a b"});
    data.tokens.insert(data.tokens.end(), {"bab",
                                           "\xC4\xA0"
                                           "bab",
                                           "stop"});
    data.types.insert(data.types.end(), {1, 1, 3});
    const std::string text = "bab bab stop";
    EXPECT_EQ(Made(data)->Encode(text).size(), text.size() - 2);
    data.pre = "llama-bpe";
    EXPECT_EQ(Made(data)->Encode(text), (std::vector<int32_t>{260, 261, ' ', 's', 't', 'o', 'p'}));
}

// A space before the text and after special tokens, not after ordinary text.
TEST(Spm, SpacePrefix) {
    TokenizerData data = TinySpm({"\xE2\x96\x81", "a"});
    data.tokens.push_back("<tool>");
    data.types.push_back(4);
    data.scores.push_back(0);
    EXPECT_EQ(Made(data)->Encode("a<tool>a a"),
              (std::vector<int32_t>{1, 259, 260, 261, 259, 260, 259, 260}));
    data.add_space_prefix = false;
    data.add_bos = false;
    data.add_eos = true;
    EXPECT_EQ(Made(data)->Encode("a<tool>a"), (std::vector<int32_t>{260, 261, 260, 2}));
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
}

// A text that begins with bos gets no second one; bos inside the text stays.
TEST(Special, OneBeginToken) {
    TokenizerData data = TinySpm({"\xE2\x96\x81", "a"});
    data.add_bos = true;
    const auto tokenizer = Made(data);
    EXPECT_EQ(tokenizer->Encode("<s>a", {.parse_special = true}),
              (std::vector<int32_t>{1, 259, 260}));
    EXPECT_EQ(tokenizer->Encode("a", {.parse_special = true}), (std::vector<int32_t>{1, 259, 260}));
    EXPECT_EQ(tokenizer->Encode("<s><s>", {.parse_special = true}), (std::vector<int32_t>{1, 1}));
    EXPECT_EQ(tokenizer->Encode("a<s>", {.parse_special = true}),
              (std::vector<int32_t>{1, 259, 260, 1}));
    std::vector<SpecialMark> marks;
    tokenizer->Encode("<s>a</s>", {.parse_special = true, .marks = &marks});
    ASSERT_EQ(marks.size(), 2u);
    EXPECT_EQ(marks[0].token, 0u);
    EXPECT_EQ(marks[1].token, 3u);
}

TEST(Special, EndOfGeneration) {
    TokenizerData data = TinyBytePair();  // 256 <|endoftext|>, 257 <|im_start|>, 258 <|im_end|>
    data.tokens.insert(data.tokens.end(), {"<|eot_id|>", "</s>", "<eos>", "xyz"});
    data.types.insert(data.types.end(), {1, 1, 3, 1});
    data.eos = 262;
    const auto tokenizer = Made(data);
    std::vector<int32_t> ends;
    for (int32_t id = 250; id < tokenizer->vocab_size(); ++id) {
        if (tokenizer->IsEog(id)) ends.push_back(id);
    }
    EXPECT_EQ(ends, (std::vector<int32_t>{256, 258, 259, 261, 262}));
    EXPECT_EQ(tokenizer->Type(259), TokenType::kControl);
    EXPECT_EQ(tokenizer->Type(260), TokenType::kNormal);
}

// Merges may lead to a control or unused token; text never does.
TEST(Special, NeverByMerging) {
    for (const int32_t type : {2, 3, 5}) {
        TokenizerData data = TinyBytePair({"a b"});
        data.types[256] = type;
        EXPECT_EQ(Made(data)->Encode("ab"), (std::vector<int32_t>{'a', 'b'}));
        data = TinySpm({"\xE2\x96\x81", "a", "b", "ab"});
        data.types[262] = type;
        EXPECT_EQ(Made(data)->Encode("ab"), (std::vector<int32_t>{1, 259, 260, 261}));
    }
}

// Each blank is a token that includes adjacent blanks: none is scanned twice.
TEST(Special, BlanksThatTakeBlanksAreFoundInLinearTime) {
    const std::string text(200'000, ' ');
    for (const bool left : {true, false}) {
        const SpecialScanner scanner({{" ", 7, left, !left, false}});
        const int64_t begin_ns = NowNs();
        size_t at = 0, from = 0, found_bytes = 0;
        int count = 0;
        while (at < text.size()) {
            const SpecialScanner::Found found = scanner.Next(text, from, at);
            if (found.id < 0) break;
            ASSERT_GE(found.at, at > 0 && left ? at : 0);
            found_bytes += found.size;
            at = std::max(at, found.at + found.size);
            from = found.next;
            ++count;
        }
        EXPECT_EQ(at, text.size());
        EXPECT_EQ(count, left ? 200'000 : 1);
        EXPECT_EQ(found_bytes, text.size());
        EXPECT_LT(NowNs() - begin_ns, test::LimitNs(1000));
    }
}

}  // namespace
}  // namespace weft::tokenizer
