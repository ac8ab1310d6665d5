// GGUF files of byte-level BPE without a pre-tokenizer.
#include "model_files/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model_files/gguf_writer.h"
#include "model_files/read_tokenizer.h"
#include "model_files/write_tokenizer.h"
#include "support/temp_dir.h"
#include "support/tiny_vocabulary.h"
#include "tokenizer/families.h"

namespace weft::model_files {
namespace {

TEST(PreTokenizer, IsGuessedByArchitectureAndVocabulary) {
    struct Known {
        std::string_view architecture, token;
        size_t size;
        std::string_view pre;
    };
    const Known known[] = {
        {"llama", "<|begin_of_text|>", 128'256, "llama-bpe"},
        {"llama", "<|im_start|>", 49'152, "smollm"},
        {"llama", "<|im_start|>", 128'000, ""},
        {"llama", "[AVAILABLE_TOOLS]", 131'072, "tekken"},
        {"llama", "", 50'000, ""},
        {"llama", "<｜begin▁of▁sentence｜>", 32'256, "deepseek-coder"},
        {"qwen2", "<|im_start|>", 151'936, "qwen2"},
        {"qwen3moe", "", 151'936, "qwen2"},
        {"qwen2vl", "", 152'064, "qwen2"},
        {"dots1", "", 152'064, "qwen2"},
        {"glm-dsa", "", 154'880, "glm4"},
        {"deepseek32", "<｜begin▁of▁sentence｜>", 129'280, "deepseek-v3"},
        {"seed_oss", "", 155'136, "seed-coder"},
        {"lfm2", "<|im_start|>", 65'536, "lfm2"},
        {"lfm2moe", "<|im_start|>", 65'536, "lfm2"},
        {"kimi-linear", "<|im_user|>", 163'840, "kimi-k2"},
        {"bailingmoe3", "", 157'184, "bailingmoe2"},
        {"qwen3vl", "", 151'936, "qwen2"},
        {"qwen3vlmoe", "", 151'936, "qwen2"},
        {"qwen2", "<｜begin▁of▁sentence｜>", 151'936, "qwen2"},  // R1's distillates
        {"llama", "<｜begin▁of▁sentence｜>", 102'400, "deepseek-llm"},
        {"llama", "<｜begin▁of▁sentence｜>", 128'256, "llama-bpe"},  // R1's distillates
        {"llama", "<｜begin▁of▁sentence｜>", 128'264, "llama-bpe"},  // fine-tuned with more tokens
        {"llama", "<｜begin▁of▁sentence｜>", 129'280, "deepseek-v3"},
        {"deepseek2", "<｜begin▁of▁sentence｜>", 102'400, "deepseek-llm"},
        {"deepseek2", "<｜begin▁of▁sentence｜>", 129'280, "deepseek-v3"},
        {"deepseek2", "<|im_user|>", 163'840, "kimi-k2"},
        {"gpt-oss", "<|channel|>", 201'088, "gpt-4o"},
        {"glm4moe", "", 151'552, "glm4"},
        {"deepseek2", "[gMASK]", 154'880, "glm4"},  // GLM-4.7-Flash
        {"granite", "", 49'155, "refact"},
        {"granite", "", 100'352, "dbrx"},           // Granite 4
        {"phi3", "<|im_start|>", 100'352, "dbrx"},  // Phi-4
        {"phi3", "<|user|>", 200'064, "gpt-4o"},    // Phi-4-mini
        {"olmo2", "<|im_start|>", 100'352, "dbrx"},
        {"olmo2", "", 200'005, "superbpe"},
        {"smollm3", "<|begin_of_text|>", 128'256, "smaug-bpe"},
        {"smollm3", "<|im_start|>", 128'256, "smaug-bpe"},
        {"llama", "<|begin_of_text|>", 128'258, "llama-bpe"},
        {"llama4", "<|begin_of_text|>", 202'048, "llama4"},
        {"llama4", "<|begin_of_text|>", 128'256, "llama-bpe"},  // MobileLLM-R1
        {"afmoe", "<|begin_of_text|>", 200'192, "afmoe"},
        {"laguna", "", 100'352, "laguna"},
        {"mimo2", "<|im_start|>", 152'576, "qwen2"},
        {"llama", ">>TITLE<<", 131'072, "falcon3"},
        {"minimax-m2", "", 200'064, "minimax-m2"},
        {"somebody", "", 1'000, ""},
    };
    for (const Known& row : known) {
        std::vector<std::string_view> tokens(row.size, "a");
        if (!row.token.empty()) tokens.back() = row.token;
        EXPECT_EQ(GuessPreTokenizer(row.architecture, tokens), row.pre)
            << row.architecture << " " << row.token;
        EXPECT_TRUE(tokenizer::MakeFamily(row.pre).ok()) << row.pre;
    }
    EXPECT_EQ(GuessPreTokenizer("llama", {}), "");
}

class NoPre : public testing::Test {
  protected:
    // The ids of "12 12" with a vocabulary that joins digits, in a file with `pre`; null: without
    // one. Ollama's files have scores, too.
    std::vector<int32_t> Ids(const char* architecture, const char* pre, bool scores = false) {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair({"1 2"});
        data.pre = pre == nullptr ? "" : pre;
        if (scores) data.scores.assign(data.tokens.size(), 0);
        GgufWriter writer;
        writer.String("general.architecture", architecture);
        WriteTokenizer(data, writer);
        const std::string path = dir_ / "words.gguf";
        EXPECT_TRUE(WriteFile(path, writer.File()).ok());
        const auto source = OpenModel(path);
        EXPECT_TRUE(source.ok()) << source.error().message;
        testing::internal::CaptureStderr();
        const auto made = LoadTokenizer(**source);
        said_ = testing::internal::GetCapturedStderr();
        EXPECT_TRUE(made.ok()) << made.error().message;
        return (*made)->Encode("12 12");
    }
    test::TempDir dir_;
    std::string said_;
};

TEST_F(NoPre, TheGuessIsUsedAndNamed) {
    const std::vector<int32_t> apart = Ids("llama", "smollm"), joined = Ids("llama", "gpt-2");
    ASSERT_NE(apart, joined);
    EXPECT_EQ(said_, "");
    EXPECT_EQ(Ids("llama", nullptr), apart);
    EXPECT_NE(said_.find("tokenizer.ggml.pre"), std::string::npos) << said_;
    EXPECT_NE(said_.find("'smollm'"), std::string::npos) << said_;
    EXPECT_EQ(Ids("qwen2", ""), Ids("qwen2", "qwen2"));
    EXPECT_EQ(Ids("qwen2", nullptr), Ids("qwen2", "qwen2"));
}

TEST_F(NoPre, OllamasDefaultIsAGuess) {
    ASSERT_NE(Ids("qwen2", "default"), Ids("qwen2", "qwen2"));
    EXPECT_EQ(Ids("qwen2", "default", true), Ids("qwen2", "qwen2"));
    EXPECT_EQ(Ids("qwen2", "gpt-2", true), Ids("qwen2", "gpt-2"));
    EXPECT_EQ(Ids("gemma2", "default", true), Ids("gemma2", "default"));
}

TEST_F(NoPre, AnUnknownVocabularyIsReadAsDefaultWithAWarning) {
    const std::vector<int32_t> usual = Ids("gemma2", "default");
    EXPECT_EQ(said_, "");
    EXPECT_EQ(Ids("gemma2", nullptr), usual);
    EXPECT_NE(said_.find("'default'"), std::string::npos) << said_;
    EXPECT_NE(said_.find("words.gguf"), std::string::npos) << said_;
}

}  // namespace
}  // namespace weft::model_files
