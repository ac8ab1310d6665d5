// Long texts of embedding requests are cut as transformers' tokenizers cut them.
#include "serve/api/prompts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

std::unique_ptr<tokenizer::Tokenizer> Bytes(bool bos, bool eos) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    data.bos = data.eos + 1;
    data.add_bos = bos;
    data.add_eos = eos;
    return tokenizer::Tokenizer::Make(std::move(data)).value();
}

TEST(CutTokens, SpecialTokensStay) {
    const std::string text = "abcdefgh";
    for (const bool bos : {false, true}) {
        for (const bool eos : {false, true}) {
            const auto tokens = Bytes(bos, eos);
            const int64_t around = int64_t{bos} + int64_t{eos};
            for (int64_t most = around + 1; most < 12; ++most) {
                for (const bool cuts_begin : {false, true}) {
                    const auto left = static_cast<size_t>(most - around);
                    const std::string kept = left >= text.size() ? text
                                             : cuts_begin        ? text.substr(text.size() - left)
                                                                 : text.substr(0, left);
                    EXPECT_EQ(CutTokens(*tokens, 1, text, most, false, cuts_begin),
                              tokens->Encode(kept))
                        << bos << eos << most << cuts_begin;
                }
            }
        }
    }
}

TEST(CutTokens, ReadsWholeCharactersOfLongTexts) {
    const auto tokens = Bytes(true, true);
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "\xE3\x81\x82";
    for (const bool cuts_begin : {false, true}) {
        for (int64_t most = 3; most < 12; ++most) {
            const auto cut = CutTokens(*tokens, 1, text, most, false, cuts_begin);
            EXPECT_LE(std::ssize(cut), most);
            EXPECT_GE(std::ssize(cut), most - 3);
            EXPECT_EQ(cut.front(), tokens->data().bos);
            EXPECT_EQ(cut.back(), tokens->data().eos);
        }
    }
    EXPECT_EQ(std::ssize(CutTokens(*tokens, 1, text, 1)), 1);
}

}  // namespace
}  // namespace weft::serve
