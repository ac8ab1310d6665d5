// DBRX (Databricks 2024): GPT's layers with RoPE, clamped heads and experts. Folders have the
// experts' matrices on top of each other, the last one as [in, out].
#include "families/family.h"

namespace weft::families::dbrx {

Result<Config> DbrxAdjust(const Config& config) {
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_ASSIGN(const Config ffn, config.Sub({"ffn_config"}));
    WEFT_ASSIGN(const Config act, ffn.Sub({"ffn_act_fn"}));
    WEFT_TRY(act.MustBe("name", "silu"));
    constexpr std::string_view kNorm = "moe_normalize_expert_weights";
    WEFT_ASSIGN(const double power, ffn.F64Or({kNorm}, 1));
    if (power != 1) return ffn.Corrupt(kNorm, "1, or null");
    const bool norms = ffn.Has(kNorm) || !ffn.Names(kNorm);
    Config usual = Renamed(config, {{"hidden_size", "d_model"},
                                    {"num_hidden_layers", "n_layers"},
                                    {"num_attention_heads", "n_heads"},
                                    {"max_position_embeddings", "max_seq_len"}});
    Json over = {
        {"norm_topk_prob", norms}, {"rms_norm_eps", nullptr}, {"intermediate_size", nullptr}};
    const bool named = config.Has("rope_theta") || config.Has("rope_parameters");
    for (const auto& [key, from, of] :
         {std::tuple{"num_key_value_heads", "kv_n_heads", &attention},
          std::tuple{"clip_qkv", "clip_qkv", &attention},
          std::tuple{"moe_intermediate_size", "ffn_hidden_size", &ffn},
          std::tuple{"num_experts", "moe_num_experts", &ffn},
          std::tuple{"num_experts_per_tok", "moe_top_k", &ffn},
          std::tuple{"rope_theta", "rope_theta", &attention}}) {
        if (of->Has(from) && !(named && key == std::string_view("rope_theta"))) {
            over[key] = of->json()[from];
        }
    }
    return usual.With(over);
}

Status DbrxMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteClamp(config, meta));
    return WriteExperts(config, meta, "moe_intermediate_size", "softmax");
}

Status DbrxLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t experts, assembly.ExpertCount());
    WEFT_ASSIGN(const int64_t ffn,
                assembly.config().NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    for (const auto& [gguf, part] :
         {std::pair{"ffn_gate", "w1"}, std::pair{"ffn_up", "v1"}, std::pair{"ffn_down", "w2"}}) {
        const std::string name = prefix + "ffn.experts.mlp." + part;
        WEFT_ASSIGN(MatrixPtr all, assembly.Checked(assembly.Tensor(name), name, experts * ffn));
        if (part == std::string_view("w2")) all = Transposed(std::move(all), ffn);
        assembly.AddExperts(layer, gguf, std::move(all), experts);
    }
    return {};
}

constexpr Rule kDbrxRules[] = {
    {"attn_norm", "norm_attn_norm.norm_1", Form::kNorm},
    {"attn_qkv", "norm_attn_norm.attn.Wqkv", Form::kLinear},
    {"attn_output", "norm_attn_norm.attn.out_proj", Form::kLinear},
    {"attn_output_norm", "norm_attn_norm.norm_2", Form::kNorm},
    {"ffn_gate_inp", "ffn.router.layer", Form::kRouter},
};

constexpr Family kFolders[] = {
    {.model_type = "dbrx",
     .architecture = "dbrx",
     .rules = {kDbrxRules},
     .meta = DbrxMeta,
     .layer = DbrxLayer,
     .adjust = DbrxAdjust,
     .defaults = R"({"d_model": 2048, "n_layers": 24, "n_heads": 16, "max_seq_len": 2048,
                     "num_key_value_heads": 1, "layer_norm_eps": 1e-5})",
     .embedding = "wte",
     .final_norm = "norm_f",
     .layers = "blocks",
     .path = "transformer",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "ffn_gate_exps.weight ffn_up_exps.weight ffn_down_exps.weight"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"dbrx", "DBRX", "LayerNorm, clamped heads, experts", "dbrx"},
     .build = GptLayers,
     .experts = true,
     .traits = {.norms = Norms::kLayer, .clamps = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::dbrx
