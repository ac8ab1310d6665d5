// Common names of models and types.
#include "plan/names.h"

#include <gtest/gtest.h>

#include <cctype>
#include <regex>
#include <set>
#include <sstream>

#include "hub/short_names.h"
#include "plan/shapes.h"
#include "support/nightly.h"

namespace weft::plan {
namespace {

// The words of a table, or its pairs WORD=MEANING.
std::vector<std::pair<std::string, std::string>> PairsOf(const char* table) {
    std::istringstream in(table);
    std::vector<std::pair<std::string, std::string>> pairs;
    for (std::string word; in >> word;) {
        const size_t equals = word.find('=');
        pairs.emplace_back(word.substr(0, equals),
                           equals == word.npos ? "" : word.substr(equals + 1));
    }
    return pairs;
}

// Words and the shapes that they mean.
constexpr const char* kShapeOf = R"(
qwen3-8b=qwen3-8b Qwen/Qwen3-8B=qwen3-8b qwen3:8b=qwen3-8b qwen3:30b-a3b-q4_K_M=qwen3-30b-a3b
hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL=qwen3-30b-a3b
mlx-community/DeepSeek-V3.1-8bit=deepseek-v3 Meta-Llama-3.1-70B-Instruct:IQ2_XXS=llama-3.1-70b
Qwen2.5-72B-Instruct-GPTQ-Int4=qwen2.5-72b mistralai/Mistral-7B-Instruct-v0.3=mistral-7b
Kimi-K2-Thinking=kimi-k2-thinking GLM-4.6-FP8=glm-4.5 deepseek-r1:8b=llama-3.1-8b
openai/gpt-oss-120b=gpt-oss-120b gemma-3-27b-it-qat-q4_0-gguf=gemma-3-27b
DeepSeek-V3.2=deepseek-v3.2 DeepSeek-V3.2-Speciale=deepseek-v3.2 GLM-5=glm-5 GLM-5.1=glm-5
GLM-5-744B-A40B=glm-5 Kimi-K2.6=kimi-k2-thinking Kimi-K2.7-Code=kimi-k2-thinking Hy3=hy3-295b-a21b
Hy4=hy4-770b-a49b tencent/Hy4-preview=hy4-770b-a49b zai-org/GLM-5.3-Flash=glm-5.3-flash-320b-a18b
Hy3-295B-A21B=hy3-295b-a21b Mistral-Small-4=mistral-small-4-119b Qwen2.5-VL-7B-Instruct=qwen2.5-7b
Solar-Open-100B=solar-open-100b Youtu-LLM-2B=youtu-llm-2b DeepSeek-V3.1=deepseek-v3
DeepSeek-Coder-V2-Lite-Instruct=deepseek-v2-lite GLM-4.7-Flash-30B-A3B=glm-4.7-flash
GLM-4.6V=glm-4.5-air GLM-4.7=glm-4.5 MiniMax-M2.7=minimax-m2 Kimi-K2-Thinking=kimi-k2-thinking
Devstral-2-123B-Instruct-2512=devstral-2-123b Devstral-Small-2-24B=mistral-small-24b
Ministral-3-14B-Instruct-2512=ministral-3-14b Mistral-Nemo-Instruct-2407=mistral-nemo-12b
Llama-4-Scout-17B-16E-Instruct=llama-4-scout-17b-16e Qwen3-VL-30B-A3B-Instruct=qwen3-30b-a3b
Qwen3-Next-80B-A3B-Instruct=qwen3-next-80b-a3b Qwen3-Coder-Next=qwen3-next-80b-a3b
Qwen3.6-35B-A3B=qwen3.5-35b-a3b Qwen3.6-27B=qwen3.5-27b Seed-OSS-36B-Instruct=seed-oss-36b
dots.llm1.inst=dots.llm1-142b EXAONE-4-32B=exaone-4.0-32b
Moonlight-16B-A3B-Instruct=moonlight-16b-a3b Phi-3.5-mini-instruct=phi-3-mini
OLMo-2-0325-32B-Instruct=olmo-2-32b Qwen/Qwen3.5-122B-A10B=qwen3.5-122b-a10b
Qwen3.5-397B-A17B-FP8=qwen3.5-397b-a17b unsloth/Qwen3.5-0.8B-GGUF:Q4_K_M=qwen3.5-0.8b
Qwen3.5-9B-Base=qwen3.5-9b stepfun-ai/Step-3.5-Flash=step-3.5-flash-196b-a11b
Step-3.5-Flash-196B-A11B=step-3.5-flash-196b-a11b Step-3.7-Flash=step-3.5-flash-196b-a11b
XiaomiMiMo/MiMo-V2-Flash=mimo-v2-flash-309b-a15b Gemma-4-31B=gemma-4-31b
unsloth/gemma-4-26B-A4B-it-GGUF:UD-Q4_K_XL=gemma-4-26b-a4b
Mistral-Small-4-119B-A6B-2603=mistral-small-4-119b Ministral-3-3B-Instruct-2512=ministral-3-3b
Ministral-3-8B-Reasoning-2512=ministral-3-8b Qwen3-VL-2B-Instruct=qwen3-1.7b
Qwen2-VL-7B-Instruct=qwen2.5-7b baidu/ERNIE-4.5-300B-A47B-PT=ernie-4.5-300b-a47b
inclusionAI/Ling-mini-2.0=ling-mini-2.0-16b Ring-flash-2.0=ling-flash-2.0-100b Ring-1T=ling-1t
arcee-ai/Trinity-Large-Thinking=trinity-large-400b-a13b Trinity-Mini=trinity-mini-26b-a3b
poolside/Laguna-XS.2=laguna-xs.2 LGAI-EXAONE/K-EXAONE-236B-A23B=k-exaone-236b-a23b
EXAONE-4.0-1.2B=exaone-4.0-1.2b c4ai-command-r7b-12-2024=command-r7b
allenai/OLMoE-1B-7B-0125-Instruct=olmoe-1b-7b GLM-5.2=glm-5.2 MiniMax-M3=minimax-m3-428b-a23b
Kimi-Linear-48B-A3B=kimi-linear-48b-a3b Nemotron-3-Super-120B-A12B=nemotron-3-super-120b-a12b
Nemotron-3-Nano-30B-A3B=nemotron-3-nano-30b-a3b gemma-4-e2b=gemma-4-e2b
Llama-4-Maverick-400B=llama-4-maverick-17b-128e
Llama-4-Maverick-17B-128E-Instruct=llama-4-maverick-17b-128e LFM2-8B-A1B=lfm2-8b-a1b
LFM2.5-1.2B=lfm2-1.2b Granite-4-H-Small=granite-4.0-h-small-32b
granite-4.0-h-tiny=granite-4.0-h-tiny-7b Falcon-H1-34B=falcon-h1-34b
Ling-3.0-flash=ling-3.0-flash-124b nvidia/NVIDIA-Nemotron-Nano-9B-v2=nemotron-nano-9b-v2
nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16=nemotron-3-nano-30b-a3b
nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4=nemotron-3-ultra-550b-a55b
nvidia/nemotron-3-ultra-550b-a55b=nemotron-3-ultra-550b-a55b
nemotron-3-ultra-550b=nemotron-3-ultra-550b-a55b
CohereLabs/command-a-plus-05-2026-fp8=command-a-plus-218b-a25b
CohereLabs/command-a-plus-05-2026-bf16=command-a-plus-218b-a25b
command-a-plus=command-a-plus-218b-a25b
nvidia/Llama-3_3-Nemotron-Super-49B-v1_5=llama-3.3-nemotron-super-49b
LiquidAI/LFM2-24B-A2B=lfm2-24b-a2b granite-4.0-micro=granite-4.0-micro-3b
ibm-granite/granite-3.1-3b-a800m-instruct=granite-3.1-3b-a800m
swiss-ai/Apertus-70B-Instruct-2509=apertus-70b arcee-ai/AFM-4.5B=afm-4.5b
microsoft/Phi-3.5-MoE-instruct=phi-3.5-moe-42b bigcode/starcoder2-15b=starcoder2-15b
stabilityai/stablelm-2-12b-chat=stablelm-2-12b allenai/Olmo-Hybrid-7B=olmo-hybrid-7b
nvidia/Minitron-4B-Base=minitron-4b nvidia/Nemotron-4-340B-Instruct=nemotron-4-340b)";

// Words with a date or a version, and the models that they mean.
constexpr const char* kModelOf = R"(
mistralai/Mistral-Large-Instruct-2411=mistral-large-2411
mistralai/Mistral-Small-3.2-24B-Instruct-2506=mistral-small-3.2-24b
mistral-small3.2:24b=mistral-small-3.2-24b
unsloth/Mistral-Small-24B-Instruct-2501-GGUF:Q4_K_M=mistral-small-24b
mistralai/Mixtral-8x7B-Instruct-v0.1=mixtral-8x7b
TinyLlama/TinyLlama-1.1B-Chat-v1.0=tinyllama-1.1b allenai/OLMo-2-1124-13B-Instruct=olmo-2-13b
CohereLabs/c4ai-command-a-03-2025=command-a-111b deepseek-ai/DeepSeek-R1-0528=deepseek-r1-0528
qwen3-30b=qwen3-30b-a3b qwen2.5-coder:7b=qwen2.5-coder-7b phi4-mini:3.8b=phi-4-mini
zai-org/GLM-4-32B-0414=glm-4-32b)";

// Parts of names, names with words that may change the shape, and models that are not known.
constexpr const char* kNoModels = R"(
qwen3 qwen3-4bit qwen3-80b qwen3-next-30b : hf: llama-3.1-8b-vision deepseek-r1:9b qwen3-8b:q9 / -
mistral-large-3 llama-31-8b llama-3-18b qwen3-8b-v2 mistral-large DeepSeek-V3.2-Exp
phi-4-multimodal Yi-1.5-34B Qwen3.8 Qwen4-exp DeepSeek-V4.1-Flash GLM-5-next MiniMax-M1 Kimi-K3
MiMo-V2.5-Pro Nemotron-Nano-8B-v2 Llama-3.3-Nemotron-Super-50B gemma-4-12b
gemma-3n-e4b Mistral-Large-3 Mistral-Large-3-675B-Instruct-2512 Mistral-Medium-3.5 Devstral-3-123B
Devstral-Small-3-24B granite-4.0-medium AI21-Jamba-Mini-1.7 Ring-2.5-1T Laguna EXAONE-4.5-33B
North Command-A-Vision command-r-08-2024 Apertus-1.5-70B OLMo-Hybrid-32B Olmo-3.1-32B
Phi-4-multimodal-instruct SmolVLM2-2.2B InternVL3.5-8B LLaVA-1.6-7b LongCat-Flash-560B
GigaChat3-702B gemma-9b falcon-40b StableLM-3-12b InternLM3-8b MiniCPM-4-8b
gpt-oss-2-120b gpt-oss-240b hunyuan-a13b-v2 Seed-OSS-2-36B smollm4-3b Qwen3.5-1B Qwen3.5-122B-A17B
GLM-5.3 MiMo-V2.5 Ling-2.5-1T Laguna-S Trinity-Large-2-400B K-EXAONE-2.0-750B-A37B
Nemotron-3-Nano-31B LFM2-1.3B Falcon-H1-8B Granite-4-H-Large gemma-4-e8b Ministral-3-24B)";

// Models that have another model's shape but their own context length.
constexpr const char* kContextOf = R"(
qwen3-30b-a3b=40960 unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL=262144
Qwen/Qwen3-235B-A22B-Thinking-2507=262144 qwen3-coder-30b-a3b=262144
Qwen/Qwen3-Coder-30B-A3B-Instruct=262144 qwen3-vl-8b=262144 qwen3-8b=40960
qwen3-coder-480b-a35b=262144 glm-4.6=202752 glm-4.5=131072 kimi-k2-thinking=262144
moonshotai/Kimi-K2-Instruct-0905=262144 kimi-k2-0905=262144 codellama-7b=16384
Phi-3-mini-128k-instruct=131072 phi-3-mini-4k=4096 meta-llama/Meta-Llama-3-8B-Instruct=8192
Meta-Llama-3-70B=8192 Meta-Llama-3-70B-Instruct:q4_k_m=8192 llama-3.1-8b=131072)";

TEST(Names, MeanShapes) {
    for (const auto& [word, shape] : PairsOf(kShapeOf)) {
        const auto found = FindShape(word);
        ASSERT_TRUE(found.has_value()) << word;
        EXPECT_EQ(found->shape, shape) << word;
    }
    for (const auto& [word, model] : PairsOf(kModelOf)) {
        const auto found = FindShape(word);
        ASSERT_TRUE(found.has_value()) << word;
        EXPECT_EQ(found->model, model) << word;
    }
    for (const auto& [word, none] : PairsOf(kNoModels)) EXPECT_FALSE(FindShape(word)) << word;
    EXPECT_FALSE(FindShape(""));
}

TEST(Names, HaveTypes) {
    for (const auto& [word, type] : std::initializer_list<std::pair<const char*, const char*>>{
             {"qwen3:30b-a3b-q4_K_M", "q4_K_M"},
             {"hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:UD-Q4_K_XL", "UD-Q4_K_XL"},
             {"mlx-community/DeepSeek-V3.1-8bit", "8bit"},
             {"Meta-Llama-3.1-70B-Instruct:IQ2_XXS", "IQ2_XXS"},
             {"Qwen2.5-72B-Instruct-GPTQ-Int4", "Int4"},
             {"GLM-4.6-FP8", "FP8"},
             {"gemma-3-27b-it-qat-q4_0-gguf", "q4_0"},
             {"qwen3:8b", ""}}) {
        EXPECT_EQ(FindShape(word)->type, type) << word;
    }
}

TEST(Names, HaveTheirOwnContext) {
    for (const auto& [word, context] : PairsOf(kContextOf)) {
        const auto opened = OpenWalk(word);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ(opened->walk.hyper().context, std::stoll(context)) << word;
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

// The parts of a name: "qwen2.5-7b" has qwen, 2.5, 7 and b. Omits two words that do not change the
// shape and are part of known names.
std::vector<std::string> PartsOf(const std::string& name) {
    static const std::regex part(R"([a-z]+|[0-9]+(\.[0-9]+)*)");
    std::string low = name;
    for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::vector<std::string> parts;
    for (std::sregex_iterator at(low.begin(), low.end(), part), end; at != end; ++at) {
        const std::string part_text = at->str();
        if (part_text != "thinking" && part_text != "reasoning") parts.push_back(part_text);
    }
    return parts;
}

// If a number or a word of a name is changed, the name means another model, or none.
TEST(Names, AnotherNumberIsAnotherModel) {
    SKIP_TO_NIGHT_UNLESS(false);
    static const std::regex number(R"([0-9]+(\.[0-9]+)?)");
    int changed = 0;
    const auto check = [&](const std::string& word) {
        ++changed;
        const auto found = FindShape(word);
        if (!found) return;
        EXPECT_EQ(PartsOf(found->name), PartsOf(word)) << word;
    };
    for (const std::string& name : ShapeNames()) {
        for (std::sregex_iterator at(name.begin(), name.end(), number), end; at != end; ++at) {
            const std::string said = at->str();
            const auto put = [&](const std::string& other) {
                check(name.substr(0, static_cast<size_t>(at->position())) + other +
                      name.substr(static_cast<size_t>(at->position()) + said.size()));
            };
            put(std::to_string(std::stoi(said) + 1));
            put(said + "1");
            put(said.find('.') == said.npos ? said + ".5" : said.substr(0, said.find('.')));
            put("");
        }
        for (const char* end : {"-2", "-v2", "-4", ".5", "-2512", "-next", "-vl", "-pro", "-flash",
                                "-lite", "-120b", "-a6b", "-omni", "-moe", "-1m", "b", "5"}) {
            check(name + end);
        }
        check("x-" + name);
    }
    EXPECT_GT(changed, 3000);
}

// Short names are known, each as a model of its own, so that both names mean one repository.
TEST(Names, ShortNamesAreKnown) {
    std::set<std::string> models;
    for (const hub::ShortName& name : hub::ShortNames()) {
        const auto found = FindShape(name.name);
        ASSERT_TRUE(found.has_value()) << name.name;
        EXPECT_TRUE(models.insert(found->model).second) << name.name << " is " << found->model;
        const auto repository = FindShape(name.model);
        EXPECT_TRUE(!repository || repository->shape == found->shape) << name.name;
    }
}

TEST(Names, NearOnesAreNamed) {
    for (const auto& [word, like] : std::initializer_list<std::pair<const char*, const char*>>{
             {"mistral-large-3", "mistral-large-2"},
             {"mistral-small-5", "mistral-small-24b"},
             {"qwen3-9b", "qwen3-8b"},
             {"deepseek-v3.3", "deepseek-v3.1"},
             {"gtp-oss-20b", "gpt-oss-20b"}}) {
        const auto opened = OpenShape(word);
        ASSERT_FALSE(opened.ok()) << word;
        EXPECT_EQ(opened.error().code, ErrorCode::kUsage) << word;
        EXPECT_NE(opened.error().message.find(like), std::string::npos) << opened.error().message;
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
    // Unsloth's files of DeepSeek-R1-0528.
    for (const auto& [type, gigabytes] : {std::pair("UD-IQ1_S", 185.0),
                                          {"UD-IQ1_M", 200},
                                          {"UD-IQ2_XXS", 216},
                                          {"UD-Q2_K_XL", 251},
                                          {"UD-Q3_K_XL", 296},
                                          {"UD-Q4_K_XL", 384},
                                          {"UD-Q5_K_XL", 481}}) {
        const auto source = OpenShape(fmt::format("deepseek-v3:{}", type));
        ASSERT_TRUE(source.ok()) << source.error().message;
        const double bytes = static_cast<double>((*source)->TotalBytes()) * 1e-9;
        EXPECT_NEAR(bytes / gigabytes, 1, 0.08) << type;
    }
    // 1,408 columns are no whole blocks of Q4_K.
    EXPECT_TRUE(OpenShape("deepseek-v2-lite:UD-Q4_K_XL").ok());
    const auto wrong = FindWeightType("Q9_K");
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("UD-Q4_K_XL and its kin"), std::string::npos);
}

}  // namespace
}  // namespace weft::plan
