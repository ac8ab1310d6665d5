#include "model_files/pre_tokenizer.h"

#include <algorithm>
#include <cstddef>

namespace weft::model_files {
namespace {

// A rule: an architecture (empty: any), a control token that the vocabulary must have (empty:
// none), and the most tokens that it may have (0: any number).
struct Evidence {
    std::string_view architecture, token;
    size_t most_tokens;
    std::string_view pre;
};

constexpr std::string_view kDeepSeekBegin = "<｜begin▁of▁sentence｜>";

// The first matching line applies. Names are the names that llama.cpp's convert_hf_to_gguf.py
// writes for these models. Control tokens are more reliable than the architecture, since many
// models use Llama's; the vocabulary size separates models that use another family's tokens.
constexpr Evidence kEvidence[] = {
    {"smollm3", "", 0, "smaug-bpe"},  // with Llama 3's tokens
    {"afmoe", "", 0, "afmoe"},
    {"", "<|begin_of_text|>", 150'000, "llama-bpe"},
    {"", "<|begin_of_text|>", 0, "llama4"},
    {"gpt-oss", "", 0, "gpt-4o"},
    {"minimax-m2", "", 0, "minimax-m2"},
    {"nemotron_h", "", 0, "pixtral"},
    {"nemotron_h_moe", "", 0, "pixtral"},
    {"falcon-h1", "", 0, "falcon-h1"},
    {"minimax-m3", "", 0, "minimax-m2"},
    {"glm4moe", "", 0, "glm4"},
    {"glm-dsa", "", 0, "glm4"},
    {"glm4", "", 0, "glm4"},
    {"laguna", "", 0, "laguna"},
    {"mimo2", "", 0, "qwen2"},
    {"bailingmoe2", "", 0, "bailingmoe2"},
    {"bailingmoe3", "", 0, "bailingmoe2"},
    {"command-r", "", 0, "command-r"},
    {"cohere2", "", 0, "command-r"},
    {"cohere2moe", "", 0, "cohere2moe"},
    {"exaone4", "", 0, "exaone4"},
    {"exaone-moe", "", 0, "exaone-moe"},
    {"hunyuan-dense", "", 0, "hunyuan-dense"},
    {"hunyuan-moe", "", 0, "hunyuan"},
    {"kimi-linear", "", 0, "kimi-k2"},
    {"lfm2", "", 0, "lfm2"},
    {"lfm2moe", "", 0, "lfm2"},
    {"olmoe", "", 0, "olmo"},
    {"deepseek2", "[gMASK]", 0, "glm4"},  // GLM-4.7-Flash
    {"", "<|im_user|>", 0, "kimi-k2"},
    {"deepseek4", "", 0, "joyai-llm"},
    {"dots1", "", 0, "qwen2"},
    {"qwen2", "", 0, "qwen2"},
    {"qwen2moe", "", 0, "qwen2"},
    {"qwen2vl", "", 0, "qwen2"},
    {"qwen3", "", 0, "qwen2"},
    {"qwen3moe", "", 0, "qwen2"},
    {"qwen3vl", "", 0, "qwen2"},
    {"qwen3vlmoe", "", 0, "qwen2"},
    {"seed_oss", "", 0, "seed-coder"},
    {"qwen3next", "", 0, "qwen2"},
    {"qwen35", "", 0, "qwen35"},
    {"qwen35moe", "", 0, "qwen35"},
    {"", kDeepSeekBegin, 40'000, "deepseek-coder"},
    {"", kDeepSeekBegin, 110'000, "deepseek-llm"},
    {"llama", kDeepSeekBegin, 128'800, "llama-bpe"},  // R1's distillates: Llama 3's 128,256
    {"", kDeepSeekBegin, 0, "deepseek-v3"},
    {"", "[AVAILABLE_TOOLS]", 0, "tekken"},
    {"granite", "", 60'000, "refact"},
    {"granite", "", 0, "dbrx"},
    {"granitehybrid", "", 0, "dbrx"},
    {"granitemoe", "", 60'000, "refact"},
    {"granitemoe", "", 0, "dbrx"},
    {"olmo2", "", 150'000, "dbrx"},
    {"olmo2", "", 0, "superbpe"},
    {"phi3", "", 150'000, "dbrx"},  // Phi-4
    {"phi3", "", 0, "gpt-4o"},      // Phi-4-mini
    {"llama", ">>TITLE<<", 0, "falcon3"},
    {"llama", "<|im_start|>", 60'000, "smollm"},
};

}  // namespace

std::string_view GuessPreTokenizer(std::string_view architecture,
                                   std::span<const std::string_view> tokens) {
    for (const Evidence& known : kEvidence) {
        if (!known.architecture.empty() && known.architecture != architecture) continue;
        if (known.most_tokens != 0 && tokens.size() > known.most_tokens) continue;
        if (!known.token.empty() && std::ranges::find(tokens, known.token) == tokens.end()) {
            continue;
        }
        return known.pre;
    }
    return {};
}

}  // namespace weft::model_files
