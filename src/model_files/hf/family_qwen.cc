// Qwen 2 and 3, dense and with experts.
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

// Sliding layers are the last ones, from max_window_layers on (qwen2_moe: every second one up to
// there; qwen3_moe: all), and only where asked for.
Status QwenWindow(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool used, config.BoolOr({"use_sliding_window"}, false));
    const bool alternate = meta.architecture() == "qwen2moe";
    if (!used || (!alternate && !config.Has("sliding_window"))) return {};
    if (meta.architecture() == "qwen3moe") return WindowEverywhere(config, meta);
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1ll << 31));
    if (config.Has("layer_types")) {
        return WriteWindow(config, meta, window, [](int64_t) { return false; });
    }
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t full, config.IntOr({"max_window_layers"}, 0, 4096, 28));
    Json types = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool slides = alternate ? layer % 2 == 0 && layer < full : layer >= full;
        types.push_back(slides ? "sliding_attention" : "full_attention");
    }
    WEFT_ASSIGN(const Config over, Config::Parse(Json{{"layer_types", types}}.dump(), ""));
    return WriteWindow(config.With(over), meta, window, [](int64_t) { return false; });
}

Status QwenMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    return QwenWindow(config, meta);
}

Status QwenMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    return QwenMeta(config, meta);
}

constexpr Rule kSharedExpertRules[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", Form::kRouter, false},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", Form::kLinear, false},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", Form::kLinear, false},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", Form::kLinear, false},
};

constexpr std::string_view kQwenDefaults =
    R"({"max_position_embeddings": 32768, "sliding_window": 4096})";

constexpr Family kQwenFamilies[] = {
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .rules = {kPreNormRules, kAttentionRules, kMlpRules},
     .meta = QwenMeta,
     .defaults = kQwenDefaults},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .rules = {kPreNormRules, kAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = QwenMoeMeta,
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 60,
                     "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                     "shared_expert_intermediate_size": 5632})"},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = QwenMeta,
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128})"},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = QwenMoeMeta,
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 128,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
};

}  // namespace

std::span<const Family> QwenFamilies() {
    return kQwenFamilies;
}

}  // namespace weft::model_files::hf
