// Arcee AFM (Arcee 2025): Llama's layers with MLPs of ReLU squared.
#include "families/family.h"

namespace weft::families::arcee {

Status ArceeMeta(const Config& config, MetaWriter& meta) {
    return WriteCommon(config, meta, "relu2");
}

constexpr Family kFolders[] = {
    {.model_type = "arcee",
     .architecture = "arcee",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = ArceeMeta,
     .pairs = true,
     .defaults = R"({"rms_norm_eps": 1e-5})",
     .more_tensors = "attn_output.bias?attention_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"arcee", "Arcee AFM", "as llama, with MLPs of ReLU squared", "arcee"},
     .build = LlamaLayers,
     .traits = {.ungated = Ungated::kReluSquared}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::arcee
