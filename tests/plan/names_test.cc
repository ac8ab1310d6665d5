// What people call models and types.
#include "plan/names.h"

#include <gtest/gtest.h>

#include "plan/shapes.h"

namespace weft::plan {
namespace {

TEST(Names, OfRepositoriesAndOtherPrograms) {
    for (const auto& [word, shape, type] :
         std::initializer_list<std::tuple<const char*, const char*, const char*>>{
             {"qwen3-8b", "qwen3-8b", ""},
             {"Qwen/Qwen3-8B", "qwen3-8b", ""},
             {"qwen3:8b", "qwen3-8b", ""},
             {"qwen3:30b-a3b-q4_K_M", "qwen3-30b-a3b", "q4_K_M"},
             {"hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL", "qwen3-30b-a3b",
              "UD-Q4_K_XL"},
             {"mlx-community/DeepSeek-V3.1-8bit", "deepseek-v3", "8bit"},
             {"Meta-Llama-3.1-70B-Instruct:IQ2_XXS", "llama-3.1-70b", "IQ2_XXS"},
             {"Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "Int4"},
             {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b", ""},
             {"Kimi-K2-Thinking", "kimi-k2-thinking", ""},
             {"GLM-4.6-FP8", "glm-4.5", "FP8"},
             {"deepseek-r1:8b", "llama-3.1-8b", ""},
             {"openai/gpt-oss-120b", "gpt-oss-120b", ""},
             {"gemma-3-27b-it-qat-q4_0-gguf", "gemma-3-27b", "q4_0"}}) {
        const auto found = FindShape(word);
        ASSERT_TRUE(found.has_value()) << word;
        EXPECT_EQ(found->shape, shape) << word;
        EXPECT_EQ(found->type, type) << word;
    }
    // A part of a name is none, and neither is a name with words that may change the shape.
    for (const char* word :
         {"qwen3", "qwen3-4bit", "qwen3-80b", "qwen3-next-80b-a3b", "", ":",
          "hf:", "llama-3.1-8b-vision", "deepseek-r1:9b", "qwen3-8b:q9", "/", "-"}) {
        EXPECT_FALSE(FindShape(word)) << word;
    }
}

TEST(Names, AliasesLeadToShapes) {
    for (const std::string& name : ShapeNames()) {
        const auto found = FindShape(name);
        ASSERT_TRUE(found.has_value()) << name;
        EXPECT_EQ(FindShape(found->shape)->shape, found->shape) << name;
    }
    EXPECT_EQ(NamesLike("zzz"), ShapeNames());
    EXPECT_EQ(NamesLike("lama-3.1-8b"), std::vector<std::string>{"llama-3.1-8b"});
    for (const std::string& name : NamesLike("gemma-5")) {
        EXPECT_TRUE(name.starts_with("gemma")) << name;
    }
}

// Of models whose shape is another's, but for how far they reach.
TEST(Names, HaveTheirOwnContext) {
    for (const auto& [word, context] : std::initializer_list<std::pair<const char*, int64_t>>{
             {"qwen3-30b-a3b", 40960},
             {"unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL", 262144},
             {"Qwen/Qwen3-235B-A22B-Thinking-2507", 262144},
             {"qwen3-coder-30b-a3b", 262144},
             {"Qwen/Qwen3-Coder-30B-A3B-Instruct", 262144},
             {"qwen3-vl-8b", 262144},
             {"qwen3-8b", 40960},
             {"qwen3-coder-480b-a35b", 262144},
             {"glm-4.6", 202752},
             {"glm-4.5", 131072},
             {"kimi-k2-thinking", 262144},
             {"moonshotai/Kimi-K2-Instruct-0905", 262144},
             {"kimi-k2-0905", 262144},
             {"meta-llama/Meta-Llama-3-8B-Instruct", 8192},
             {"Meta-Llama-3-70B", 8192},
             {"Meta-Llama-3-70B-Instruct:q4_k_m", 8192},
             {"llama-3.1-8b", 131072}}) {
        const auto opened = OpenWalk(word);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ(opened->walk.hyper().context, context) << word;
    }
}

// Bits of a weight of a dense model, embeddings and all.
TEST(Types, HaveTheirSize) {
    const auto bits = [](const std::string& type) {
        const auto source = OpenShape("llama-3.1-8b:" + type);
        EXPECT_TRUE(source.ok()) << source.error().message;
        return static_cast<double>((*source)->TotalBytes()) * 8 / 8.03e9;
    };
    EXPECT_NEAR(bits("4bit"), 4.5, 0.02);
    EXPECT_NEAR(bits("8bit"), 8.5, 0.02);
    EXPECT_NEAR(bits("UD-Q4_K_XL"), bits("Q4_K_M"), 1e-9);
    EXPECT_GT(bits("Q4_K_L"), bits("Q4_K_M"));
    EXPECT_LT(bits("IQ2_XXS"), 2.6);
    EXPECT_LT(bits("IQ1_S"), bits("IQ2_XXS"));
    // Embeddings and logits, 1.05e9 of the weights, stay BF16.
    EXPECT_NEAR(bits("AWQ"), (4.25 * 6.98 + 16 * 1.05) / 8.03, 0.05);
    EXPECT_NEAR(bits("fp8"), (8.5 * 6.98 + 16 * 1.05) / 8.03, 0.05);
    const auto wrong = FindWeightType("Q9_K");
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("UD-Q4_K_XL and its kin"), std::string::npos);
}

}  // namespace
}  // namespace weft::plan
