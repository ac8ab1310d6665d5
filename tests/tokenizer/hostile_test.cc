// Invalid tokenizer files: each is rejected with the faulty key.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "support/tiny_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {
namespace {

void ExpectRefused(const TokenizerData& data, ErrorCode code, std::string_view words) {
    const auto made = Tokenizer::Make(data);
    ASSERT_FALSE(made.ok()) << "expected an error about: " << words;
    EXPECT_EQ(made.error().code, code);
    EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
}

TEST(Hostile, Families) {
    TokenizerData data = TinyBytePair();
    data.model = "rwkv";
    ExpectRefused(data, ErrorCode::kUnsupported, "'rwkv' is not supported; supported: gpt2");
    data = TinyBytePair();
    data.pre = "tekkon";
    ExpectRefused(data, ErrorCode::kUnsupported,
                  "'tekkon' is not supported; supported: a.x-4.0, afmoe, bailingmoe");
    data.pre = "";
    EXPECT_TRUE(Tokenizer::Make(data).ok());
}

TEST(Hostile, Sizes) {
    TokenizerData data = TinyBytePair();
    data.tokens.clear();
    ExpectRefused(data, ErrorCode::kCorrupt, "tokenizer.ggml.tokens has 0 tokens");
    data = TinyBytePair();
    data.types.pop_back();
    ExpectRefused(data, ErrorCode::kCorrupt, "token_type has 258 entries for 259 tokens");
    data = TinySpm();
    data.scores.clear();
    ExpectRefused(data, ErrorCode::kCorrupt, "scores has 0 entries for 259 tokens");
    data = TinyBytePair();
    data.scores = {1};
    ExpectRefused(data, ErrorCode::kCorrupt, "scores has 1 entries");
}

TEST(Hostile, Values) {
    TokenizerData data = TinySpm();
    data.scores[7] = std::nanf("");
    ExpectRefused(data, ErrorCode::kCorrupt, "scores[7] is NaN");
    for (const int32_t type : {0, 7, -1, std::numeric_limits<int32_t>::min()}) {
        data = TinySpm();
        data.types[5] = type;
        ExpectRefused(data, ErrorCode::kCorrupt, "token_type[5] is " + std::to_string(type));
    }
    for (std::vector<int32_t> TokenizerData::*list :
         {&TokenizerData::ends, &TokenizerData::prefix, &TokenizerData::middle,
          &TokenizerData::suffix}) {
        data = TinySpm();
        data.*list = {1, 999};
        ExpectRefused(data, ErrorCode::kCorrupt, "a special token has the id 999");
    }
    data = TinySpm();
    data.tokens[9] = "byte nine";
    ExpectRefused(data, ErrorCode::kCorrupt, "token 9 'byte nine' is of type byte");
}

TEST(Hostile, Ids) {
    const std::pair<const char*, int32_t TokenizerData::*> named[] = {
        {"bos", &TokenizerData::bos},     {"eos", &TokenizerData::eos},
        {"eot", &TokenizerData::eot},     {"eom", &TokenizerData::eom},
        {"unknown", &TokenizerData::unk}, {"padding", &TokenizerData::pad}};
    for (const auto& [name, member] : named) {
        for (const int32_t id :
             {259, -2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
            TokenizerData data = TinyBytePair();
            data.*member = id;
            ExpectRefused(data, ErrorCode::kCorrupt,
                          std::string(name) + "_token_id is " + std::to_string(id));
        }
    }
    TokenizerData data = TinyBytePair();
    data.add_bos = true;
    ExpectRefused(data, ErrorCode::kCorrupt, "add_bos_token is true, but");
    data = TinyBytePair();
    data.add_eos = true;
    data.eos = -1;
    ExpectRefused(data, ErrorCode::kCorrupt, "add_eos_token is true, but");
}

TEST(Hostile, Tokens) {
    TokenizerData data = TinyBytePair();
    data.tokens[200] = data.tokens[100];
    ExpectRefused(data, ErrorCode::kCorrupt, "tokens 100 and 200 are both 'd'");
    data = TinyBytePair();
    data.tokens[258] = std::string(5000, 'x');
    ExpectRefused(data, ErrorCode::kCorrupt, "special token 258 is 5000 bytes long");
    data = TinyBytePair();
    data.tokens = {"ab", "cd"};
    data.types = {1, 1};
    data.eos = -1;
    ExpectRefused(data, ErrorCode::kCorrupt, "has no byte tokens");
    data = TinySpm();
    data.types[40] = 5;
    data.unk = -1;
    ExpectRefused(data, ErrorCode::kCorrupt, "255 of 256 byte tokens and no unknown token");
}

TEST(Hostile, Merges) {
    for (const char* merge :
         {"", " ", "a", "a ", " a", "a a", "a zz", "zz a", "a  b", "\xFF \xFE"}) {
        TokenizerData data = TinyBytePair();
        data.merges = {merge};
        ExpectRefused(data, ErrorCode::kCorrupt, "merges[0] is '" + std::string(merge) + "'");
    }
    // The first of two equal merges counts.
    TokenizerData data = TinyBytePair({"a b", "b c"});
    data.merges.push_back("a b");
    EXPECT_EQ(Tokenizer::Make(data).value()->Encode("abc"), (std::vector<int32_t>{256, 'c'}));
}

TEST(Hostile, HolesInTheVocabulary) {
    TokenizerData data = TinyBytePair();
    data.tokens[7] = data.tokens[8] = "";
    const auto tokenizer = Tokenizer::Make(data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->Encode("a\x07z"), (std::vector<int32_t>{'a', 'z'}));
    EXPECT_EQ((*tokenizer)->Piece(7), "");
    EXPECT_EQ((*tokenizer)->Find(""), -1);
}

TEST(Hostile, IdsOutOfRange) {
    const auto tokenizer = Tokenizer::Make(TinyBytePair()).value();
    const std::vector<int32_t> ids = {-1, 259, 'a', std::numeric_limits<int32_t>::max(),
                                      std::numeric_limits<int32_t>::min()};
    EXPECT_EQ(tokenizer->Decode(ids), "a");
    for (const int32_t id : ids) {
        EXPECT_EQ(tokenizer->IsEog(id), false);
        EXPECT_EQ(tokenizer->IsSpecial(id), false);
    }
}

// Any change of one field gives an error or a working tokenizer.
TEST(Hostile, RandomChanges) {
    std::mt19937 random(7);
    for (int round = 0; round < 3000; ++round) {
        TokenizerData data = round % 2 ? TinyBytePair({"a b", "ab c"}) : TinySpm({"a", "b", "ab"});
        for (int change = 0; change < 3; ++change) {
            const size_t at = random() % data.tokens.size();
            const auto any = static_cast<int32_t>(random() % 300) - 20;
            const std::function<void()> changes[] = {
                [&] { data.tokens[at] = std::string(random() % 3, static_cast<char>(random())); },
                [&] { data.types[at] = static_cast<int32_t>(random() % 8); },
                [&] { data.bos = any; },
                [&] { data.eos = any; },
                [&] { data.add_bos = true; },
                [&] { data.merges.push_back("a b"); },
                [&] { data.tokens.pop_back(); },
            };
            changes[random() % std::size(changes)]();
        }
        const auto made = Tokenizer::Make(data);
        if (!made.ok()) continue;
        const auto ids = (*made)->Encode("ab abc\xFF <s>", {.parse_special = true});
        for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < (*made)->vocab_size());
    }
}

}  // namespace
}  // namespace weft::tokenizer
