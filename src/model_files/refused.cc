#include "model_files/refused.h"

#include <fmt/format.h>

namespace weft::model_files {
namespace {

constexpr RefusedModel kRefusedModels[] = {
    {"", "deepseek_v41", "DeepSeek V4.1",
     "embeddings of n-grams, keys shared by layers, blocks of candidates"},
    {"", "kimi_k3", "Kimi-K3", "gates by column, blocks of residuals"},
    {"", "qwen4_exp", "Qwen4-exp, Qwen3.8-Flash-Next",
     "hyper-connections, embeddings of n-grams, an indexer of pooled keys"},
};

}  // namespace

std::span<const RefusedModel> RefusedModels() {
    return kRefusedModels;
}

std::string WhyRefused(std::string_view word) {
    constexpr std::string_view kTextSuffix = "_text";
    if (word.ends_with(kTextSuffix)) word.remove_suffix(kTextSuffix.size());
    if (word.empty()) return {};
    for (const RefusedModel& model : kRefusedModels) {
        if (word != model.architecture && word != model.model_type) continue;
        return fmt::format("{}; it needs {}", model.models, model.needs);
    }
    return {};
}

}  // namespace weft::model_files
