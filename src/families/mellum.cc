// Mellum 2 (JetBrains 2026): Qwen 3's layers with experts; windowed layers have another RoPE base.
#include "families/family.h"

namespace weft::families::mellum {

// Mellum 2: windowed layers have another RoPE base.
Status MellumMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, 1ll << 31, 0));
    WEFT_TRY(WriteWindow(config, meta, window, [](int64_t) { return false; }));
    return WriteWindowedBase(config, meta);
}

constexpr Family kFolders[] = {
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
};
constexpr Architecture kArchitectures[] = {
    {.family = {"mellum", "Mellum 2", "normed heads, windows, RoPE of two bases", "mellum"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.plain_windows = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mellum
