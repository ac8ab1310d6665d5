// Long texts of embedding requests are cut as transformers' tokenizers cut them.
#include "serve/api/prompts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/tiny_vocabulary.h"
#include "tokenizer/read_json.h"

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
                    EXPECT_EQ(CutTokens(*tokens, text, most, false, cuts_begin),
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
            const auto cut = CutTokens(*tokens, text, most, false, cuts_begin);
            EXPECT_LE(std::ssize(cut), most);
            EXPECT_GE(std::ssize(cut), most - 3);
            EXPECT_EQ(cut.front(), tokens->data().bos);
            EXPECT_EQ(cut.back(), tokens->data().eos);
        }
    }
    EXPECT_EQ(std::ssize(CutTokens(*tokens, text, 1)), 1);
}

nlohmann::json Sequence(const char* normalizer, const char* splitter, nlohmann::json model) {
    nlohmann::json file = {{"model", std::move(model)}, {"pre_tokenizer", {{"type", splitter}}}};
    file["normalizer"] =
        normalizer == nullptr ? nlohmann::json() : nlohmann::json{{"type", normalizer}};
    file["added_tokens"] = {{{"id", 1}, {"content", "[CLS]"}, {"special", true}},
                            {{"id", 2}, {"content", "[SEP]"}, {"special", true}}};
    const nlohmann::json a = {{"Sequence", {{"id", "A"}}}};
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "[CLS]"}}}}, a, {{"SpecialToken", {{"id", "[SEP]"}}}}}},
        {"special_tokens",
         {{"[CLS]", {{"id", "[CLS]"}, {"ids", {1}}}}, {"[SEP]", {{"id", "[SEP]"}, {"ids", {2}}}}}}};
    return file;
}

// One tokenizer of each kind: bytes; WordPiece as BERT; Unigram; SentencePiece as T5 and Llama.
std::vector<std::unique_ptr<tokenizer::Tokenizer>> Kinds() {
    std::vector<std::unique_ptr<tokenizer::Tokenizer>> kinds;
    kinds.push_back(Bytes(true, true));
    nlohmann::json words = {{"[UNK]", 0}, {"[CLS]", 1}, {"[SEP]", 2}}, pieces;
    for (const char* word : {"cat", "dog"}) words[word] = words.size();
    for (char c = 'a'; c <= 'z'; ++c) {
        words[std::string(1, c)] = words.size();
        words["##" + std::string(1, c)] = words.size();
    }
    for (const char* word : {"[UNK]", "[CLS]", "[SEP]", "cat", "dog", "a", "b", "e", "z", "q"}) {
        pieces.push_back({word, -1.0});
    }
    const nlohmann::json wordpiece = {{"type", "WordPiece"},
                                      {"vocab", words},
                                      {"unk_token", "[UNK]"},
                                      {"continuing_subword_prefix", "##"},
                                      {"max_input_chars_per_word", 100}};
    const nlohmann::json unigram = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}};
    for (const auto& file : {Sequence("BertNormalizer", "BertPreTokenizer", wordpiece),
                             Sequence("NFKC", "Whitespace", unigram)}) {
        auto made = tokenizer::ReadTokenizerJson(file.dump(), {});
        EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
        if (made.ok()) kinds.push_back(std::move(*made));
    }
    for (const char* model : {"llama", "t5"}) {
        tokenizer::TokenizerData data = tokenizer::TinySpm({"\u2581", "cat", "dog", "ca", "do"});
        data.model = model;
        data.add_eos = true;
        data.remove_extra_spaces = model == std::string("t5");
        auto made = tokenizer::Tokenizer::Make(std::move(data));
        EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
        if (made.ok()) kinds.push_back(std::move(*made));
    }
    return kinds;
}

// The cut keeps the beginning (or the end) of the whole text's tokens, whatever bytes vanish.
TEST(CutTokens, AreTheWholeTextsTokens) {
    const auto many = [](const char* part, int times) {
        std::string text;
        for (int i = 0; i < times; ++i) text += part;
        return text;
    };
    const std::string texts[] = {
        many("\n", 10'000) + "cat dog",
        "cat " + many("q", 20'000) + " dog dog",
        "a b " + many("z", 150) + " cat",
        many(" ", 2'000) + many("q", 150) + many(" ", 9'000) + "dog",
        "dog" + many(" ", 9'000) + many("q", 150) + many(" ", 2'000),
        many("cat dog ", 5'000),
        many("\u0007\u0001", 9'000) + "dog cat" + many(" \t", 9'000),
        "dog" + many("\u200B\u00AD", 5'000) + "cat" + many("\u0301", 9'000),
        many(" ", 50'000),
        "e" + many("\u0301", 20'000) + " cat",
        many("\u3042", 9'000)};
    for (const auto& tokens : Kinds()) {
        for (const std::string& text : texts) {
            const std::vector<int32_t> all = tokens->Encode(text);
            for (const size_t room : {size_t{3}, size_t{5}, size_t{64}, size_t{512}}) {
                for (const bool cuts_begin : {false, true}) {
                    std::vector<int32_t> expected = all;
                    if (all.size() > room) {
                        const auto gone = static_cast<std::ptrdiff_t>(all.size() - room);
                        const auto at =
                            cuts_begin ? expected.begin() + 1 : expected.end() - 1 - gone;
                        expected.erase(at, at + gone);
                    }
                    EXPECT_EQ(
                        CutTokens(*tokens, text, static_cast<int64_t>(room), false, cuts_begin),
                        expected)
                        << tokens->data().model << " " << text.substr(0, 20) << room << cuts_begin;
                }
            }
        }
    }
}

}  // namespace
}  // namespace weft::serve
