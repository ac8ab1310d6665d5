// Seed-OSS (ByteDance 2025): GLM-4.5's layers, dense, with fully rotated heads.
#include "families/family.h"

namespace weft::families::seed_oss {

constexpr Rule kSeedNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
};

constexpr Family kFolders[] = {
    {.model_type = "seed_oss",
     .architecture = "seed_oss",
     .rules = {kSeedNormRules, kAttentionRules, kMlpRules},
     .defaults = R"({"max_position_embeddings": 524288, "head_dim": 128,
                     "num_key_value_heads": 8})",
     .more_tensors = "attn_q.bias attn_k.bias attn_v.bias attn_output.bias?attention_out_bias"},
};

ValueId BuildSeedOss(Builder& b, ValueId x) {
    return PreNormLayers(
        b, x, [&](ValueId h) { return NormedAttention(b, h, false); }, "post_attention_norm");
}

constexpr Architecture kArchitectures[] = {
    {.family = {"seed_oss", "Seed-OSS", "biases", "seedOss"}, .build = BuildSeedOss},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::seed_oss
