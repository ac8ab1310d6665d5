// Qwen2 and 2.5 (Yang et al. 2024): Llama's block with biases on Q, K and V, and RoPE over halves.
// Qwen3 (Yang et al. 2025): no biases; each query and key head is RMS-normed before RoPE; head_dim
// is explicit. Both are dense or have experts; of the vision models (Qwen2-VL to Qwen3-VL), the
// text part.
#include "families/family.h"

namespace weft::families::qwen {

Status QwenMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteGated(config, meta));
    return WriteUsedWindow(config, meta);
}

Status Qwen2MoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    WEFT_TRY(WriteGated(config, meta));
    return WriteUsedWindow(config, meta, true);
}

Status Qwen3MoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    WEFT_TRY(WriteGated(config, meta));
    WEFT_ASSIGN(const bool used, config.BoolOr({"use_sliding_window"}, false));
    return used ? WindowEverywhere(config, meta) : Status();
}

// Number of layers that read features of the vision tower, which GGUF files state.
Status WriteDeepStack(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const Config vision, config.Sub({"vision_config"}));
    WEFT_ASSIGN(const std::vector<int64_t> layers, vision.Ints({"deepstack_visual_indexes"}));
    if (!layers.empty()) meta.Int("n_deepstack_layers", static_cast<int64_t>(layers.size()));
    return {};
}

Status Qwen2VlMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(QwenMeta(config, meta));
    return WriteRopeSections(config, meta, {16, 24, 24});
}

Status Qwen3VlMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteDeepStack(config, meta));
    return WriteRopeSections(config, meta, {24, 20, 20});
}

Status Qwen3VlMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    return Qwen3VlMeta(config, meta);
}

constexpr std::string_view kQwenDefaults =
    R"({"max_position_embeddings": 32768, "sliding_window": 4096})";

constexpr Family kFolders[] = {
    {.model_type = "qwen2_vl",
     .also = "qwen2_vl_text qwen2_5_vl qwen2_5_vl_text",
     .architecture = "qwen2vl",
     .meta = Qwen2VlMeta,
     .defaults = R"({"max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "num_key_value_heads": 8,
                     "sliding_window": 4096, "max_window_layers": 80})",
     .rope = {.mrope = true},
     .more_tensors = kQkvBiases},
    {.model_type = "qwen3_vl",
     .also = "qwen3_vl_text",
     .architecture = "qwen3vl",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = Qwen3VlMeta,
     .defaults = R"({"max_position_embeddings": 128000, "rope_theta": 500000.0,
                     "head_dim": 128, "num_key_value_heads": 32})",
     .rope = {.mrope = true}},
    {.model_type = "qwen3_vl_moe",
     .also = "qwen3_vl_moe_text",
     .architecture = "qwen3vlmoe",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = Qwen3VlMoeMeta,
     .turned_experts = true,
     .defaults = R"({"max_position_embeddings": 128000, "rope_theta": 500000.0,
                     "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
                     "moe_intermediate_size": 1408, "norm_topk_prob": true})",
     .rope = {.mrope = true}},
    {.model_type = "qwen2",
     .also = "mimo",
     .architecture = "qwen2",
     .meta = QwenMeta,
     .defaults = kQwenDefaults,
     .more_tensors = kQkvBiases,
     .written = {.name = "Qwen2ForCausalLM",
                 .attention = ClassBias::kAlways,
                 .windows = ClassWindows::kUsed}},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .rules = {kPreNormRules, kAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = Qwen2MoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 60,
                     "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                     "shared_expert_intermediate_size": 5632, "qkv_bias": true})",
     .more_tensors = "attn_q.bias?qkv_bias attn_k.bias?qkv_bias attn_v.bias?qkv_bias",
     .written = {.name = "Qwen2MoeForCausalLM",
                 .attention = ClassBias::kAlways,
                 .shared_expert = true}},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = QwenMeta,
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128})",
     .written = {.name = "Qwen3ForCausalLM", .windows = ClassWindows::kUsed}},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = Qwen3MoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 128,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768})",
     .written = {.name = "Qwen3MoeForCausalLM"}},
};

ValueId BuildQwen2(Builder& b, ValueId x) {
    const bool biases = b.hyper().moe.experts == 0;  // models with experts may lack them
    return PreNormLayers(b, x, [&](ValueId h) { return RotatedAttention(b, h, false, biases); });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"qwen2", "Qwen 1.5 to 2.5", "biases, YaRN", "qwen2, qwen2Yarn"},
     .build = BuildQwen2},
    {.family = {"qwen2moe", "Qwen 1.5 and 2 with experts", "biases, a gated shared expert",
                "qwen2moe, qwen2moePlain"},
     .build = BuildQwen2,
     .experts = true,
     .traits = {.renormalises = false}},
    {.family = {"qwen2vl", "Qwen2-VL, Qwen2.5-VL (text)", "biases", "qwen2vl"},
     .build = BuildQwen2},
    {.family = {"qwen3", "Qwen 3 (dense)", "normed heads", "qwen3Tied"}, .build = NormedHeadLayers},
    {.family = {"qwen3moe", "Qwen 3 with experts", "normed heads", "qwen3moe"},
     .build = NormedHeadLayers,
     .experts = true},
    {.family = {"qwen3vl", "Qwen3-VL (text)", "normed heads", "qwen3vl"},
     .build = NormedHeadLayers},
    {.family = {"qwen3vlmoe", "Qwen3-VL with experts (text)", "normed heads", "qwen3vlmoe"},
     .build = NormedHeadLayers,
     .experts = true},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::qwen
