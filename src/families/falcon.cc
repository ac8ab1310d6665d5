// Falcon (Almazrouei et al. 2023): GPT's layers with RoPE, and attention beside the MLP. Falcon-RW
// has ALiBi.
#include "families/family.h"

namespace weft::families::falcon {

// Keys and values: one head, as many as query heads, or (40B and later) num_kv_heads.
Result<Config> FalconDenseAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("apply_residual_connection_post_layernorm", false));
    Json over = {{"num_key_value_heads", nullptr}};
    const Config renamed = Renamed(config, {{"num_hidden_layers", "n_layer"},
                                            {"num_attention_heads", "n_head"},
                                            {"intermediate_size", "ffn_hidden_size"},
                                            {"hidden_act", "activation"}});
    WEFT_ASSIGN(const bool wide, config.BoolOr({"new_decoder_architecture"}, false));
    WEFT_ASSIGN(const bool one, config.BoolOr({"multi_query"}, true));
    WEFT_ASSIGN(const bool parallel, config.BoolOr({"parallel_attn"}, true));
    WEFT_ASSIGN(const int64_t norms, config.IntOr({"num_ln_in_parallel_attn"}, 1, 2, 2));
    over["wide"] = wide && norms == 2;
    over["serial"] = !wide && !parallel;
    if (wide) {
        WEFT_ASSIGN(const int64_t heads, renamed.NeedInt({"num_attention_heads"}, 1, 4096));
        WEFT_ASSIGN(const int64_t kv,
                    renamed.IntOr({"num_kv_heads", "n_head_kv"}, 1, heads, heads));
        over["num_key_value_heads"] = kv;
    } else if (one) {
        over["num_key_value_heads"] = 1;
    }
    return UsualKeys(renamed.With(over), {});
}

// (transformers 5.24 rounds the bias of ALiBi to bfloat16; Weft does not.)
Status FalconDenseMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool alibi, config.BoolOr({"alibi"}, false));
    if (alibi) meta.F32("attention.max_alibi_bias", 8);
    return WriteUngated(config, meta);
}

// Models with one norm for attention and the MLP, with one for each, or with one before each.
constexpr Rule kFalconNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"attn_norm", "ln_mlp", Form::kNorm, false},
    {"attn_norm_2", "ln_attn", Form::kNorm, false},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
};
constexpr Rule kFalconDenseRules[] = {
    {"attn_output", "self_attention.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "falcon",
     .also = "RefinedWeb RefinedWebModel",
     .architecture = "falcon",
     .rules = {kFalconNormRules, kFalconDenseRules},
     .qkv = {"self_attention.query_key_value"},
     .meta = FalconDenseMeta,
     .adjust = FalconDenseAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "activation": "gelu",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "word_embeddings",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.weight attn_norm.bias "
                     "attn_norm_2.weight?wide attn_norm_2.bias?wide ffn_norm.weight?serial "
                     "ffn_norm.bias?serial output_norm.bias "
                     "attn_q.bias?bias attn_k.bias?bias attn_v.bias?bias attn_output.bias?bias "
                     "ffn_up.bias?bias ffn_down.bias?bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"falcon", "Falcon 7B to 180B, Falcon 2, Falcon-RW",
                "LayerNorm with biases, attention beside the MLP, MLPs of GELU without a gate, "
                "ALiBi",
                "falcon, falconWide, falconAlibi"},
     .build = GptLayers,
     .traits =
         {.norms = Norms::kLayer, .ungated = Ungated::kGelu, .alibi = 0, .scales_alibi = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::falcon
