#include "model_files/ollama_keys.h"

#include <algorithm>

namespace weft::model_files {
namespace {

using namespace std::string_view_literals;

constexpr struct {
    std::string_view ollama, usual;
} kOllamaNames[] = {
    {"gemma3.rope.global.freq_base", "gemma3.rope.freq_base"},
    {"gemma3.rope.local.freq_base", "gemma3.rope.freq_base_swa"},
    {"gemma3.rope.scaling.beta_fast", "gemma3.rope.scaling.yarn_beta_fast"},
    {"gemma3.rope.scaling.beta_slow", "gemma3.rope.scaling.yarn_beta_slow"},
    {"mistral3.rope.scaling.beta_fast", "mistral3.rope.scaling.yarn_beta_fast"},
    {"mistral3.rope.scaling.beta_slow", "mistral3.rope.scaling.yarn_beta_slow"},
    {"mistral3.rope.scaling.mscale_all_dim", "mistral3.rope.scaling.yarn_log_multiplier"},
    {"mistral3.rope.scaling_beta", "mistral3.attention.temperature_scale"},
};

// Strings as GGUF stores them: the length in 8 bytes, then the text.
constexpr std::string_view kLinearText = "\6\0\0\0\0\0\0\0linear"sv,
                           kLlamaText = "\5\0\0\0\0\0\0\0llama"sv,
                           kGemma3Text = "\6\0\0\0\0\0\0\0gemma3"sv,
                           kGemma4Text = "\6\0\0\0\0\0\0\0gemma4"sv;
constexpr float kGemma3Epsilon = 1e-6f, kGemma3Base = 1e6f, kGemma3Factor = 8;

MetaEntry* FindEntry(std::vector<MetaEntry>& entries, std::string_view key) {
    const auto found = std::ranges::find(entries, key, &MetaEntry::key);
    return found == entries.end() ? nullptr : &*found;
}

bool HoldsText(const MetaEntry* entry, std::string_view stored) {
    return entry != nullptr && entry->type == MetaType::kString &&
           std::ranges::equal(entry->bytes, std::as_bytes(std::span(stored)));
}

void AddIfMissing(std::vector<MetaEntry>& entries, std::string_view key, const float& constant) {
    if (FindEntry(entries, key) != nullptr) return;
    entries.push_back(
        {key, MetaType::kF32, MetaType::kF32, 1, std::as_bytes(std::span(&constant, 1))});
}

// Files of Gemma 3 4B, 12B and 27B have neither the epsilon, which llama.cpp requires, nor the
// settings of RoPE; the 1B model has a shorter context and no scaling.
void CompleteGemma3(std::vector<MetaEntry>& entries) {
    constexpr uint64_t kScaledContext = 131072;
    constexpr std::string_view kEpsilonKey = "gemma3.attention.layer_norm_rms_epsilon";
    if (FindEntry(entries, "gemma3.block_count") == nullptr) return;
    if (FindEntry(entries, kEpsilonKey) != nullptr) return;
    AddIfMissing(entries, kEpsilonKey, kGemma3Epsilon);
    AddIfMissing(entries, "gemma3.rope.freq_base", kGemma3Base);
    const auto context = Metadata("", entries).U64Or("gemma3.context_length", 0);
    if (!context.ok() || *context < kScaledContext) return;
    if (FindEntry(entries, "gemma3.rope.scaling.type") != nullptr) return;
    AddIfMissing(entries, "gemma3.rope.scaling.factor", kGemma3Factor);
    entries.push_back({"gemma3.rope.scaling.type", MetaType::kString, MetaType::kString, 1,
                       std::as_bytes(std::span(kLinearText))});
}

}  // namespace

void TranslateOllamaKeys(std::vector<MetaEntry>& entries) {
    for (const auto& [ollama, usual] : kOllamaNames) {
        MetaEntry* entry = FindEntry(entries, ollama);
        if (entry != nullptr && FindEntry(entries, usual) == nullptr) entry->key = usual;
    }
    const MetaEntry* architecture = FindEntry(entries, "general.architecture");
    if (HoldsText(architecture, kGemma3Text)) return CompleteGemma3(entries);
    // Gemma 4's tokenizer is named as SentencePiece, but has merges.
    MetaEntry* model = FindEntry(entries, "tokenizer.ggml.model");
    const bool merges = FindEntry(entries, "tokenizer.ggml.merges") != nullptr;
    const MetaEntry* pre = FindEntry(entries, "tokenizer.ggml.pre");
    if (!merges || !HoldsText(model, kLlamaText) || !HoldsText(pre, kGemma4Text)) return;
    model->bytes = std::as_bytes(std::span(kGemma4Text));
}

std::string TranslateOllamaTensor(std::string_view name) {
    if (name.ends_with(".ssm_dt")) return std::string(name) + ".bias";     // Qwen 3.5
    constexpr std::string_view kScale = ".ffn_gate_inp.per_expert_scale";  // Gemma 4's experts
    if (!name.ends_with(kScale)) return std::string(name);
    name.remove_suffix(kScale.size());
    return std::string(name) + ".ffn_down_exps.scale";
}

}  // namespace weft::model_files
