// Models with LayerNorms that have biases: Nemotron, Persimmon, StableLM 2 and StarCoder 2.
#include <algorithm>

#include "model_files/hf/assembly.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

Status NemotronDenseMeta(const Config& config, MetaWriter& meta) {
    return WriteCommon(config, meta, "relu2");
}

// ---- Persimmon ----------------------------------------------------------------------------------

// As many heads of keys as of queries.
Result<Config> PersimmonAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    return NoRmsNorms(config.With(Json{{"num_key_value_heads", heads}}));
}

Status PersimmonLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return assembly.AddHeadNorms(layer, prefix + "self_attn.");
}

// ---- StarCoder 2 --------------------------------------------------------------------------------

// GGUF files do not state the window, which all published models have.
Status Starcoder2Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta, "gelu_pytorch_tanh"));
    if (!config.Has("sliding_window")) meta.Int("attention.sliding_window", 0);
    return WindowEverywhere(config, meta);
}

// ---- StableLM 2 ---------------------------------------------------------------------------------

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

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kPersimmonRules[] = {
    {"attn_output", "self_attn.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};
constexpr Rule kStarcoder2Rules[] = {
    {"ffn_up", "mlp.c_fc", Form::kLinear},
    {"ffn_down", "mlp.c_proj", Form::kLinear},
};
constexpr Rule kStableLmRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
};

constexpr Family kLayerNormFamilies[] = {
    {.model_type = "nemotron",
     .architecture = "nemotron",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = NemotronDenseMeta,
     .norm_add = 1,
     .adjust = NoRmsNorms,
     .defaults = R"({"norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .layer_norm = "norm_eps",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias?attention_bias"},
    {.model_type = "persimmon",
     .architecture = "nemotron",
     .rules = {kPreNormRules, kPersimmonRules},
     .qkv = {"self_attn.query_key_value"},
     .meta = WriteUngated,
     .layer = PersimmonLayer,
     .adjust = PersimmonAdjust,
     .defaults = R"({"max_position_embeddings": 16384, "hidden_act": "relu2",
                     "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
                     "qk_layernorm": true})",
     .rope = {.partial = true},
     .final_norm = "final_layernorm",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
                     "output_norm.bias attn_q.bias attn_k.bias attn_v.bias attn_output.bias "
                     "ffn_up.bias ffn_down.bias attn_q_norm.weight?qk_layernorm "
                     "attn_q_norm.bias?qk_layernorm attn_k_norm.weight?qk_layernorm "
                     "attn_k_norm.bias?qk_layernorm"},
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
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .rules = {kPreNormRules, kAttentionRules, kStarcoder2Rules},
     .meta = Starcoder2Meta,
     .adjust = NoRmsNorms,
     .defaults = R"({"norm_epsilon": 1e-5, "use_bias": true, "num_key_value_heads": 2,
                     "tie_word_embeddings": true})",
     .layer_norm = "norm_epsilon",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias attn_q.bias?use_bias "
                     "attn_k.bias?use_bias attn_v.bias?use_bias attn_output.bias?use_bias "
                     "ffn_up.bias?use_bias ffn_down.bias?use_bias"},
};

}  // namespace

extern const std::span<const Family> kLayerNormModels = kLayerNormFamilies;

}  // namespace weft::model_files::hf
