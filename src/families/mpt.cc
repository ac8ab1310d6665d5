// MPT (MosaicML 2023): GPT's layers with ALiBi and without biases.
#include "families/family.h"

namespace weft::families::mpt {

// transformers ignores what these keys would change.
Result<Config> MptAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("no_bias", true));
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_TRY(attention.MustBe("attn_type", "multihead_attention"));
    for (const char* key : {"qk_ln", "prefix_lm"}) WEFT_TRY(attention.MustBe(key, false));
    WEFT_TRY(attention.MustBe("alibi", true));
    WEFT_ASSIGN(const int64_t times, config.IntOr({"expansion_ratio"}, 1, 64, 4));
    if (times != 4) return config.Corrupt("expansion_ratio", "4: others are not supported");
    if (config.Has("logit_scale")) {
        return config.Corrupt("logit_scale", "null: it is not supported");
    }
    return UsualKeys(config, {{"hidden_size", "d_model"},
                              {"num_hidden_layers", "n_layers"},
                              {"num_attention_heads", "n_heads"},
                              {"max_position_embeddings", "max_seq_len"}});
}

Status MptMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_ASSIGN(const double bias, attention.F64Or({"alibi_bias_max"}, 8));
    WEFT_ASSIGN(const double scale, attention.F64Or({"softmax_scale"}, 0));
    meta.F32("attention.max_alibi_bias", bias);
    WEFT_TRY(WriteClamp(attention, meta));
    if (scale != 0) meta.F32("attention.scale", scale);
    return WriteUngated(config, meta);
}

constexpr Rule kMptRules[] = {
    {"attn_norm", "norm_1", Form::kNorm},
    {"ffn_norm", "norm_2", Form::kNorm},
    {"attn_output", "attn.out_proj", Form::kLinear},
    {"ffn_up", "ffn.up_proj", Form::kLinear},
    {"ffn_down", "ffn.down_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "mpt",
     .architecture = "mpt",
     .rules = {kMptRules},
     .qkv = {"attn.Wqkv", QkvOrder::kWhole},
     .meta = MptMeta,
     .adjust = MptAdjust,
     .defaults = R"({"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                     "max_position_embeddings": 2048, "hidden_act": "gelu",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "wte",
     .final_norm = "norm_f",
     .layers = "blocks",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"mpt", "MPT", "ALiBi, LayerNorm, clamped heads, MLPs of GELU without a gate",
                "mpt"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer,
                .ungated = Ungated::kGelu,
                .clamps = true,
                .rotates = false,
                .alibi = 0}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mpt
