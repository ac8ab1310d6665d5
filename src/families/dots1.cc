// dots.llm1 (rednote 2025): Qwen 3's layers with DeepSeek-V3's experts.
#include "families/family.h"

namespace weft::families::dots1 {

// Windows do not depend on use_sliding_window.
Status Dots1Meta(const Config& config, MetaWriter& meta) {
    const Config whole = config.With(Json{{"use_sliding_window", true}});
    WEFT_TRY(WriteExperts(whole, meta, "moe_intermediate_size", "sigmoid"));
    WEFT_TRY(WriteGated(whole, meta));
    return WriteUsedWindow(whole, meta);
}

constexpr Family kFolders[] = {
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
};
constexpr Architecture kArchitectures[] = {
    {.family = {"dots1", "dots.llm1", "normed heads, leading dense layers, shared experts",
                "dots1"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.gate_score = GateScore::kSigmoid, .renormalises = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::dots1
