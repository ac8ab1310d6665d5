// Fill-in-the-middle: a vocabulary's tokens, and prompts made with them.
#include "serve/api/llama/fim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/file.h"
#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "support/temp_dir.h"
#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

using tokenizer::Tokenizer;

class Fim : public testing::Test {
  protected:
    // Makes a vocabulary with these tokens after the others.
    void Make(const std::vector<std::string>& names, bool bos = false) {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair({"h e"});
        first_ = static_cast<int32_t>(data.tokens.size());
        for (const std::string& name : names) {
            data.tokens.push_back(name);
            data.types.push_back(static_cast<int32_t>(tokenizer::TokenType::kControl));
        }
        if (bos) {
            data.bos = first_;
            data.add_bos = true;
        }
        tokenizer_ = Tokenizer::Make(std::move(data)).value();
    }
    FimTokens Find(const std::function<void(model_files::GgufWriter&)>& add = nullptr) {
        model_files::GgufWriter writer;
        writer.String("general.architecture", "llama");
        if (add) add(writer);
        writer.Tensor("t", DType::kF32, std::vector<int64_t>{1}, std::vector<std::byte>(4));
        EXPECT_TRUE(WriteFile(dir_ / "m.gguf", writer.File()).ok());
        const auto file = model_files::Gguf::Open(dir_ / "m.gguf");
        EXPECT_TRUE(file.ok());
        return FindFim(file->meta(), *tokenizer_);
    }
    std::string Shown(const std::vector<int32_t>& tokens) const {
        return tokenizer_->Decode(tokens, false);
    }
    FimText Text(const std::string& prefix, const std::string& suffix) const {
        return {PlainTokens(*tokenizer_, prefix), PlainTokens(*tokenizer_, suffix)};
    }

    test::TempDir dir_;
    std::unique_ptr<Tokenizer> tokenizer_;
    int32_t first_ = 0;
};

TEST_F(Fim, FindsTokensByFamilyNames) {
    const std::vector<std::vector<std::string>> families = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
        {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>",
         "<\uFF5Cfim\u2581end\uFF5C>"},
        {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},
        {"<PRE>", "<SUF>", "<MID>"},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    };
    for (const auto& names : families) {
        Make(names);
        const FimTokens fim = Find();
        EXPECT_TRUE(fim.ok()) << names[0];
        EXPECT_EQ(Shown(FimPrompt(fim, *tokenizer_, Text("he", "llo"))),
                  names[0] + "he" + names[1] + "llo" + names[2]);
        Make({names[0], names[1]});
        EXPECT_FALSE(Find().ok()) << "without a middle";
    }
    Make({"[PREFIX]", "[SUFFIX]"});
    const FimTokens mistral = Find();
    EXPECT_TRUE(mistral.ok());
    EXPECT_EQ(Shown(FimPrompt(mistral, *tokenizer_, Text("he", "llo"))), "[SUFFIX]llo[PREFIX]he");
    Make({"plain"});
    EXPECT_FALSE(Find().ok());
}

TEST_F(Fim, MetadataWinsAndInvalidIdsAreIgnored) {
    Make({"a1", "a2", "a3", "b1", "b2", "b3"});
    const auto ids = [&](const char* prefix, const char* suffix, const char* middle, int32_t from) {
        return [=, this](model_files::GgufWriter& writer) {
            const std::string ggml = "tokenizer.ggml.";
            writer.U32(ggml + prefix, static_cast<uint32_t>(first_ + from));
            writer.U32(ggml + suffix, static_cast<uint32_t>(first_ + from + 1));
            writer.U32(ggml + middle, static_cast<uint32_t>(first_ + from + 2));
        };
    };
    const auto older = ids("prefix_token_id", "suffix_token_id", "middle_token_id", 0);
    const auto newer = ids("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id", 3);
    EXPECT_EQ(Find(older).prefix, first_);
    EXPECT_EQ(Find([&](auto& writer) {
                  older(writer);
                  newer(writer);
              }).middle,
              first_ + 5);
    EXPECT_FALSE(Find(ids("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id", 4)).ok())
        << "beyond the vocabulary";
    EXPECT_FALSE(Find([](auto& writer) {
                     writer.String("tokenizer.ggml.fim_pre_token_id", "1");
                     writer.I32("tokenizer.ggml.fim_suf_token_id", -1);
                     writer.F32("tokenizer.ggml.fim_mid_token_id", 3);
                 }).ok());
}

TEST_F(Fim, BeginTokenAndContextFiles) {
    Make({"<s>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>",
          "<|file_sep|>"},
         true);
    const FimTokens fim = Find();
    FimText text = Text("he", "llo <|fim_middle|>");
    text.begun = PlainTokens(*tokenizer_, "!");
    text.files = {FileTokens(fim, *tokenizer_, {"a.py", "x"})};
    const std::vector<int32_t> tokens = FimPrompt(fim, *tokenizer_, text);
    EXPECT_EQ(Shown(tokens),
              "<s><|repo_name|>myproject\n<|file_sep|>a.py\nx\n<|file_sep|>filename\n"
              "<|fim_prefix|>he<|fim_suffix|>llo <|fim_middle|><|fim_middle|>!");
    EXPECT_EQ(std::ranges::count(tokens, fim.middle), 1) << "a text has no markers";
    engine::Request request;
    EndAtFim(fim, request);
    EXPECT_EQ(request.end_tokens,
              (std::vector<int32_t>{fim.prefix, fim.suffix, fim.middle, fim.repo, fim.file}));
}

}  // namespace
}  // namespace weft::serve
