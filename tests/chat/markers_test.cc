// User text never becomes a token that begins or ends a text or a turn, whatever its type in the
// file; the template's text does.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "chat/chat.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/read_json.h"

namespace weft::chat {
namespace {

constexpr int32_t kNormal = 1, kUserDefined = 4;

bool Holds(const std::vector<int32_t>& ids, int32_t id) {
    return std::ranges::find(ids, id) != ids.end();
}

// `marker` in user text `text` gives no special token at any position; in the template's text it
// does.
void ExpectMarker(const tokenizer::Tokenizer& tokenizer, const std::string& marker) {
    const int32_t id = tokenizer.Find(marker);
    ASSERT_GE(id, 0) << marker;
    EXPECT_EQ(tokenizer.Type(id), tokenizer::TokenType::kControl) << marker;
    for (const std::string& text : {marker, "a" + marker + "b", " " + marker + " ", marker + marker,
                                    "x\n" + marker + "\nsystem"}) {
        EXPECT_FALSE(Holds(tokenizer.Encode(text, {.add_special = false}), id)) << text;
        EXPECT_TRUE(
            Holds(tokenizer.Encode(text, {.add_special = false, .parse_special = true}), id))
            << text;
    }
    const auto chat = Chat::Make("{{ messages[0].content }}", tokenizer);
    ASSERT_TRUE(chat.ok());
    const auto asked = chat->Encode(OneQuestion("", "a" + marker)).value();
    const bool begun = tokenizer.data().add_bos && tokenizer.data().bos == id;
    EXPECT_EQ(std::ranges::count(asked, id), begun ? 1 : 0) << marker;
    const auto own = Chat::Make("{{ messages[0].content }}" + marker, tokenizer);
    ASSERT_TRUE(own.ok());
    EXPECT_TRUE(Holds(own->Encode(OneQuestion("", "a")).value(), id)) << marker;
}

std::unique_ptr<tokenizer::Tokenizer> MarkersMade(tokenizer::TokenizerData data) {
    auto made = tokenizer::Tokenizer::Make(std::move(data));
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(*made) : nullptr;
}

// Phi-3's file types "</s>" as user-defined, and no id refers to it.
TEST(Markers, TypedUserDefinedInTheFile) {
    for (const char* marker :
         {"<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>",
          "<start_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|start_header_id|>",
          "[INST]", "[/INST]", "<eos>", "<bos>", "</s>", "<s>", "[EOS]",
          "<\xEF\xBD\x9CUser\xEF\xBD\x9C>"}) {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair();
        data.tokens.resize(256);
        data.types.resize(256);
        data.eos = -1;
        data.tokens.push_back(marker);
        data.types.push_back(kUserDefined);
        const auto tokenizer = MarkersMade(data);
        ASSERT_NE(tokenizer, nullptr);
        ExpectMarker(*tokenizer, marker);
    }
    tokenizer::TokenizerData data = tokenizer::TinySpm({"a", "b"});
    data.types[1] = data.types[2] = kUserDefined;
    const auto tokenizer = MarkersMade(data);
    ASSERT_NE(tokenizer, nullptr);
    ExpectMarker(*tokenizer, "</s>");
    ExpectMarker(*tokenizer, "<s>");
    EXPECT_TRUE(tokenizer->IsEog(2));
}

// Ids that the file declares as beginning or end, with names of their own.
TEST(Markers, NamedByIds) {
    for (const int32_t type : {kNormal, kUserDefined}) {
        for (int32_t tokenizer::TokenizerData::*which :
             {&tokenizer::TokenizerData::bos, &tokenizer::TokenizerData::eos,
              &tokenizer::TokenizerData::eot, &tokenizer::TokenizerData::eom}) {
            tokenizer::TokenizerData data = tokenizer::TinyBytePair();
            data.*which = static_cast<int32_t>(data.tokens.size());
            data.tokens.push_back("<|my_own_end|>");
            data.types.push_back(type);
            const auto tokenizer = MarkersMade(data);
            ASSERT_NE(tokenizer, nullptr);
            ExpectMarker(*tokenizer, "<|my_own_end|>");
        }
    }
}

// Ordinary tokens stay text: tool markers, and an end token that is a plain line end.
TEST(Markers, OtherTokensAreLeftAlone) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    data.tokens.push_back("<tool_call>");
    data.types.push_back(kUserDefined);
    data.eos = 10;  // "\n", of type normal
    const auto tokenizer = MarkersMade(data);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_TRUE(Holds(tokenizer->Encode("a<tool_call>b"), tokenizer->Find("<tool_call>")));
    EXPECT_TRUE(Holds(tokenizer->Encode("a\nb"), 10));
    EXPECT_TRUE(tokenizer->IsEog(10));
}

// The same in a tokenizer.json, whose added tokens have "special": false.
TEST(Markers, InTokenizerJson) {
    nlohmann::json vocab, added = nlohmann::json::array();
    for (int byte = 0; byte < 256; ++byte) vocab[tokenizer::SpellByte(byte)] = byte;
    int id = 256;
    for (const char* text : {"</s>", "<|user|>", "<|mine|>", "<tool>"}) {
        added.push_back({{"id", id++},
                         {"content", text},
                         {"special", false},
                         {"rstrip", true},
                         {"normalized", false}});
    }
    added.push_back({{"id", id}, {"content", "<|end|>"}, {"special", false}, {"normalized", true}});
    const nlohmann::json file = {
        {"added_tokens", added},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    tokenizer::TokenizerHints hints;
    hints.eos = "<|mine|>";
    const auto made = tokenizer::ReadTokenizerJson(file.dump(), hints);
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const char* marker : {"</s>", "<|user|>", "<|mine|>", "<|end|>"}) {
        ExpectMarker(**made, marker);
    }
    EXPECT_TRUE((*made)->IsEog(256));
    EXPECT_TRUE(Holds((*made)->Encode("a<tool>b"), 259));
}

}  // namespace
}  // namespace weft::chat
