// Kimi Linear (Kimi team 2025): three of four layers are Kimi Delta Attention, the fourth is latent
// attention without positions; experts are as in DeepSeek-V3.
#include "families/family.h"
#include "model_files/hf/kimi_delta.h"

namespace weft::families::kimi_linear {

// Layer types from linear_attn_config, which lists layer numbers from 1.
Result<Json> NamedTypes(const Config& attention, int64_t layers) {
    WEFT_ASSIGN(const std::vector<int64_t> full, attention.Ints({"full_attn_layers"}));
    WEFT_ASSIGN(const std::vector<int64_t> kda, attention.Ints({"kda_layers"}));
    Json types = Json::array();
    for (int64_t layer = 1; layer <= layers; ++layer) {
        const bool attends = std::ranges::find(full, layer) != full.end();
        if (attends == (std::ranges::find(kda, layer) != kda.end())) {
            return attention.Corrupt(
                "kda_layers",
                fmt::format("each of {} layers, either here or in full_attn_layers", layers));
        }
        types.push_back(attends ? "full_attention" : "linear_attention");
    }
    return types;
}

// Takes the keys of published folders, in linear_attn_config.
Status TakeAttention(const Config& config, Json& over) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const Config attention, config.Sub({"linear_attn_config"}));
    const std::pair<const char*, const char*> names[] = {
        {"head_dim", "linear_head_dim"},
        {"num_heads", "linear_num_heads"},
        {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
    for (const auto& [from, to] : names) {
        if (!attention.Has(from)) continue;
        WEFT_ASSIGN(over[to], attention.NeedInt({from}, 1, 4096));
    }
    if (config.Has("layer_types")) return {};
    if (attention.Has("full_attn_layers") && attention.Has("kda_layers")) {
        WEFT_ASSIGN(over["layer_types"], NamedTypes(attention, layers));
        return {};
    }
    over["layer_types"] = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool attends = layer > 0 && layer % 4 == 0;
        over["layer_types"].push_back(attends ? "full_attention" : "linear_attention");
    }
    return {};
}

Result<Config> KimiLinearAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("mla_use_nope", true));
    Json over = Json::object();
    WEFT_TRY(TakeRenamed(config, over));
    WEFT_TRY(TakeAttention(config, over));
    return WithDenseLayers(config.With(over));
}

Status KimiLinearLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> kda, LayersOfType(assembly.config(), "linear_attention"));
    if (kda[static_cast<size_t>(layer)]) {
        return KdaLayer(assembly, layer, prefix + "self_attn.", -1);
    }
    return SplitKvB(assembly, layer, prefix + "self_attn.kv_b_proj");
}

constexpr Rule kKimiMoeRules[] = {
    {"ffn_%", "mlp.%_proj", Form::kLinear, false},
    {"ffn_%", "block_sparse_moe.%_proj", Form::kLinear, false},  // saved by transformers
    {"ffn_gate_inp", "block_sparse_moe.gate", Form::kRouter, false},
    {"ffn_%_exps", "block_sparse_moe.experts.*.w%", Form::kExperts, false},
};
constexpr Rule kKimiSharedRules[] = {
    {"ffn_%_shexp", "block_sparse_moe.shared_experts.%_proj", Form::kLinear, false},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", Form::kVector, false},
};

constexpr Family kFolders[] = {
    {.model_type = "kimi_linear",
     .architecture = "kimi-linear",
     .rules = {kPreNormRules, kSomeLatentRules, kKdaRules, kKimiMoeRules, kKimiSharedRules},
     .meta = KdaMeta,
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .layer = KimiLinearLayer,
     .adjust = KimiLinearAdjust,
     .defaults = R"({"max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
                     "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                     "v_head_dim": 128, "num_experts": 256, "n_shared_experts": 1,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                     "routed_scaling_factor": 2.446, "norm_topk_prob": true,
                     "linear_head_dim": 128, "linear_num_heads": 32,
                     "linear_conv_kernel_dim": 4})",
     .more_tensors = "attn_k_b.weight attn_v_b.weight ssm_conv1d_q.weight"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"kimi-linear", "Kimi Linear",
                "Kimi Delta Attention, latent attention without positions, leading dense layers",
                "kimiLinear"},
     .build = KimiDeltaLayers,
     .experts = true,
     .traits = {.rotates_latents = false,
                .gate_score = GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::kimi_linear
