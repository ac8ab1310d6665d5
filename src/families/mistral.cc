// Mistral (Jiang et al. 2023), Ministral, Mixtral (2024) and Devstral 2: Llama's layers with
// windows, with experts, or with a temperature of queries.
#include "families/family.h"

namespace weft::families::mistral {

Status MistralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteGated(config, meta));
    return WindowEverywhere(config, meta);
}

Status Ministral3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(MistralMeta(config, meta));
    return WriteTemperature(config, meta);
}

// As Mistral, with some windowed layers.
Status MinistralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    if (window == 0 && !config.Has("layer_types")) return {};
    return WriteWindow(config, meta, window, [](int64_t) { return true; });
}

Status MixtralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    return WindowEverywhere(config, meta);
}

constexpr Family kFolders[] = {
    {.model_type = "mistral",
     .architecture = "llama",
     .meta = MistralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "num_key_value_heads": 8,
                     "sliding_window": 4096})",
     .written = {.name = "MistralForCausalLM",
                 .attention = ClassBias::kNever,
                 .windows = ClassWindows::kAll}},
    {.model_type = "ministral",
     .architecture = "llama",
     .meta = MinistralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "num_key_value_heads": 8,
                     "sliding_window": 4096})"},
    {.model_type = "ministral3",
     .architecture = "mistral3",
     .meta = Ministral3Meta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "head_dim": 128,
                     "num_key_value_heads": 8,
                     "rope_parameters": {
                         "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                         "original_max_position_embeddings": 16384, "beta_fast": 32.0,
                         "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0,
                         "llama_4_scaling_beta": 0.1}})",
     .rope = {.temperature = true, .log_multiplier = 1}},
    {.model_type = "mixtral",
     .architecture = "llama",
     .rules = {kPreNormRules, kAttentionRules, kBlockSparseMoeRules, kMoeRules},
     .meta = MixtralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "num_key_value_heads": 8, "norm_topk_prob": true,
                     "num_local_experts": 8, "num_experts_per_tok": 2,
                     "intermediate_size": 14336})",
     .written = {.name = "MixtralForCausalLM", .attention = ClassBias::kNever, .experts = true}},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"mistral3", "Ministral 3, Devstral 2", "YaRN, temperature", "ministral3"},
     .build = LlamaLayers,
     .experts = true,
     .traits = {.temperature = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mistral
