// StableLM 2 (Bellagente et al. 2024): GPT's layers with partial RoPE and SwiGLU. Heads may have
// LayerNorms of their own, and attention may be beside the MLP.
#include "families/family.h"

namespace weft::families::stablelm {

Result<Config> StableLmAdjust(const Config& config) {
    WEFT_ASSIGN(const bool beside, config.BoolOr({"use_parallel_residual"}, false));
    return NoRmsNorms(config.With(Json{{"norms_mlp", !beside}}));
}

Status StableLmMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const bool beside, config.BoolOr({"use_parallel_residual"}, false));
    meta.Bool("use_parallel_residual", beside);
    return {};
}

// Each head has a norm of its own.
Status StableLmLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const bool normed, config.BoolOr({"qk_layernorm"}, false));
    WEFT_ASSIGN(const bool norms_mlp, config.BoolOr({"norms_mlp"}, true));
    if (norms_mlp != assembly.Has(prefix + "post_attention_layernorm.weight")) {
        return config.Corrupt("use_parallel_residual",
                              norms_mlp ? "true: a layer has no post_attention_layernorm"
                                        : "false: a layer has a post_attention_layernorm");
    }
    if (!normed) return {};
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t kv, config.IntOr({"num_key_value_heads"}, 1, heads, heads));
    for (const auto& [gguf, module, count] :
         {std::tuple{"attn_q_norm.weight", "q_layernorm", heads},
          std::tuple{"attn_k_norm.weight", "k_layernorm", kv}}) {
        std::vector<MatrixPtr> norms;
        for (int64_t head = 0; head < count; ++head) {
            const std::string name =
                fmt::format("{}self_attn.{}.norms.{}.weight", prefix, module, head);
            WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
            norms.push_back(AsVector(std::move(norm)));
        }
        WEFT_ASSIGN(MatrixPtr all, assembly.Joined(std::move(norms), prefix + module));
        assembly.Add(Assembly::Block(layer, gguf), std::move(all));
    }
    return {};
}

constexpr Rule kStableLmRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
};

constexpr Family kFolders[] = {
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .rules = {kStableLmRules, kAttentionRules, kMlpRules},
     .meta = StableLmMeta,
     .layer = StableLmLayer,
     .adjust = StableLmAdjust,
     .defaults = R"({"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
                     "num_key_value_heads": 32})",
     .rope = {.partial = true},
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_norm.bias output_norm.bias ffn_norm.weight?norms_mlp "
                     "ffn_norm.bias?norms_mlp attn_q_norm.weight?qk_layernorm "
                     "attn_k_norm.weight?qk_layernorm attn_q.bias?use_qkv_bias "
                     "attn_k.bias?use_qkv_bias attn_v.bias?use_qkv_bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family =
         {"stablelm", "StableLM 2",
          "LayerNorm with biases, partial RoPE; heads with LayerNorms of their own, attention "
          "beside the MLP",
          "stablelm, stablelmWide"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::stablelm
