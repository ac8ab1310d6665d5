// HyperCLOVA X SEED (NAVER 2025): Granite's layers, with norms behind attention and the MLP.
#include "families/family.h"

namespace weft::families::hyperclovax {

// Logits are multiplied by their factor, not divided by it as in Granite.
Status HyperClovaMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const double factor, config.NeedF64({"logits_scaling"}));
    if (!(factor > 0)) return config.Corrupt("logits_scaling", "a number above 0");
    return WriteScales(config.With(Json{{"logits_scaling", 1 / factor}}), meta);
}

constexpr Rule kHyperClovaRules[] = {
    {"post_attention_norm", "post_norm1", Form::kNorm, false},
    {"post_ffw_norm", "post_norm2", Form::kNorm, false},
};

constexpr Family kFolders[] = {
    {.model_type = "hyperclovax",
     .architecture = "hyperclovax",
     .rules = {kPreNormRules, kAttentionRules, kMlpRules, kHyperClovaRules},
     .meta = HyperClovaMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 0.08838834764831845,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0, "use_post_norm": true})",
     .more_tensors = "post_attention_norm.weight?use_post_norm "
                     "post_ffw_norm.weight?use_post_norm"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"hyperclovax", "HyperCLOVA X SEED", "scales, norms on both sides", "hyperclovax"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::hyperclovax
