// Qwen 2 and 3, dense and with experts, the text part of the vision models (Qwen2-VL to Qwen3-VL),
// and dots.llm1.
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

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

// Mellum 2: windowed layers have another RoPE base.
Status MellumMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, 1ll << 31, 0));
    WEFT_TRY(WriteWindow(config, meta, window, [](int64_t) { return false; }));
    return WriteWindowedBase(config, meta);
}

// Qwen 3's attention and DeepSeek-V3's experts. Its windows do not depend on use_sliding_window.
Status Dots1Meta(const Config& config, MetaWriter& meta) {
    const Config whole = config.With(Json{{"use_sliding_window", true}});
    WEFT_TRY(WriteExperts(whole, meta, "moe_intermediate_size", "sigmoid"));
    return QwenMeta(whole, meta);
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

constexpr Family kQwenFamilies[] = {
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
    {.model_type = "dots1",
     .architecture = "dots1",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules, kSharedExpertsRules},
     .meta = Dots1Meta,
     .routing = kGroupRouting,
     .defaults = R"({"max_position_embeddings": 2048, "num_key_value_heads": 32,
                     "moe_intermediate_size": 1408, "n_group": 1, "topk_group": 1,
                     "first_k_dense_replace": 0, "norm_topk_prob": false,
                     "routed_scaling_factor": 1.0, "sliding_window": 4096,
                     "max_window_layers": 62})"},
    {.model_type = "qwen2",
     .also = "mimo",
     .architecture = "qwen2",
     .meta = QwenMeta,
     .defaults = kQwenDefaults,
     .more_tensors = kQkvBiases},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .rules = {kPreNormRules, kAttentionRules, kMoeRules, kSharedExpertRules},
     .meta = Qwen2MoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 60,
                     "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                     "shared_expert_intermediate_size": 5632, "qkv_bias": true})",
     .more_tensors = "attn_q.bias?qkv_bias attn_k.bias?qkv_bias attn_v.bias?qkv_bias"},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMlpRules},
     .meta = QwenMeta,
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128})"},
    {.model_type = "mellum",
     .architecture = "mellum",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = MellumMeta,
     .routing = "norm_topk_prob",
     .adjust = WithDenseLayers,
     .defaults = R"({"max_position_embeddings": 131072, "head_dim": 128,
                     "num_key_value_heads": 4, "num_experts": 64, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 896, "norm_topk_prob": true,
                     "sliding_window": 1024,
                     "rope_parameters": {
                         "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
     .rope = {.by_layer_type = true}},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMoeRules},
     .meta = Qwen3MoeMeta,
     .routing = "norm_topk_prob",
     .defaults = R"({"max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 128,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768})"},
};

}  // namespace

extern const std::span<const Family> kQwenModels = kQwenFamilies;

}  // namespace weft::model_files::hf
