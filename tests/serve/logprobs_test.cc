#include "serve/api/openai/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

using engine::GeneratedToken;

// Tokens of TinyBytePair are bytes: 0xe2 0x82 0xac is a character in three parts.
class Logprobs : public testing::Test {
  protected:
    const std::unique_ptr<tokenizer::Tokenizer> words_ =
        tokenizer::Tokenizer::Make(tokenizer::TinyBytePair()).value();
    const std::vector<GeneratedToken> parts_ = {
        {{0xe2, -0.5f}, {{0xe2, -0.5f}, {0xe3, -1.5f}, {0x82, -2.5f}, {'a', -3}}},
        {{0x82, -0.25f}, {{0x82, -0.25f}}},
        {{0xac, -0.125f}, {{0xac, -0.125f}}},
        {{'a', -1}, {}}};
};

TEST_F(Logprobs, PartsOfCharactersHaveNamesOfTheirOwn) {
    int64_t offset = 0;
    const Json json = Json::parse(TextLogprobs(*words_, parts_, offset));
    EXPECT_EQ(json["tokens"], Json({"bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "a"}));
    EXPECT_EQ(
        json["top_logprobs"][0],
        Json({{"bytes:\\xe2", -0.5}, {"bytes:\\xe3", -1.5}, {"bytes:\\x82", -2.5}, {"a", -3.0}}));
    EXPECT_EQ(json["text_offset"], Json({0, 1, 1, 1}));
    EXPECT_EQ(offset, 2);
}

TEST_F(Logprobs, TokensAreNamedByIdsOnRequest) {
    const Json asked{{"return_tokens_as_token_ids", true}};
    Fields fields(asked);
    const TokenNames names = ReadTokenNames(fields);
    int64_t offset = 0;
    const Json text = Json::parse(TextLogprobs(*words_, parts_, offset, names));
    EXPECT_EQ(text["tokens"][0], "token_id:226");
    EXPECT_EQ(text["top_logprobs"][0]["token_id:97"], -3.0);
    const Json chat = Json::parse(ChatLogprobs(*words_, parts_, names));
    EXPECT_EQ(chat["content"][1]["token"], "token_id:130");
    EXPECT_EQ(chat["content"][1]["bytes"], Json({0x82}));
    EXPECT_EQ(chat["content"][0]["top_logprobs"][3]["token"], "token_id:97");
}

}  // namespace
}  // namespace weft::serve
