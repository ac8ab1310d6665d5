// Jamba (AI21 2024): Mamba layers, and attention without positions in some; an MLP or experts
// behind each.
#include "families/family.h"
#include "model_files/hf/mamba.h"

namespace weft::families::jamba {

// Attention in every `attn_layer_period`-th layer, experts in every `expert_layer_period`-th one.
Result<Config> JambaAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t kv,
                config.NeedInt({"num_key_value_heads", "num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"attn_layer_period"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t first, config.NeedInt({"attn_layer_offset"}, 0, kMostLayers));
    WEFT_ASSIGN(const int64_t each, config.NeedInt({"expert_layer_period"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t from, config.NeedInt({"expert_layer_offset"}, 0, kMostLayers));
    WEFT_ASSIGN(const int64_t experts, config.NeedInt({"num_experts"}, 1, 1 << 16));
    WEFT_ASSIGN(const int64_t expand, config.NeedInt({"mamba_expand"}, 1, 64));
    Json heads = Json::array(), dense = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        heads.push_back(layer % step == first ? kv : 0);
        if (experts == 1 || layer % each != from) dense.push_back(layer);
    }
    const auto rank = config.Has("mamba_dt_rank") && config.json()["mamba_dt_rank"] == "auto"
                          ? Json((hidden + 15) / 16)
                          : config.json()["mamba_dt_rank"];
    return config.With(Json{{"num_key_value_heads", heads},
                            {"mlp_only_layers", dense},
                            {"conv_kernel", config.json()["mamba_d_conv"]},
                            {"state_size", config.json()["mamba_d_state"]},
                            {"time_step_rank", rank},
                            {"inner_size", expand * hidden}});
}

Status JambaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteMambaSizes(config, meta));
    WEFT_ASSIGN(const int64_t experts, config.NeedInt({"num_experts"}, 1, 1 << 16));
    return experts == 1 ? Status() : WriteExperts(config, meta, "intermediate_size", "softmax");
}

Status JambaLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<int64_t> kv, assembly.config().Ints({"num_key_value_heads"}));
    if (kv[static_cast<size_t>(layer)] != 0) return {};
    return AddChannels(assembly, layer, prefix + "mamba.");
}

constexpr Rule kJambaMambaRules[] = {
    {"ssm_in", "mamba.in_proj", Form::kLinear, false},
    {"ssm_x", "mamba.x_proj", Form::kLinear, false},
    {"ssm_dt", "mamba.dt_proj", Form::kLinear, false},
    {"ssm_out", "mamba.out_proj", Form::kLinear, false},
    {"ssm_dt_norm", "mamba.dt_layernorm", Form::kNorm, false},
    {"ssm_b_norm", "mamba.b_layernorm", Form::kNorm, false},
    {"ssm_c_norm", "mamba.c_layernorm", Form::kNorm, false},
};
constexpr Rule kJambaMlpRules[] = {
    {"ffn_%", "feed_forward.%_proj", Form::kLinear, false},
    {"ffn_gate_inp", "feed_forward.router", Form::kRouter, false},
    {"ffn_%_exps", "feed_forward.experts.*.%_proj", Form::kExperts, false},
};

constexpr Family kFolders[] = {
    {.model_type = "jamba",
     .architecture = "jamba",
     .rules = {kPreFfNormRules, kSomeAttentionRules, kJambaMambaRules, kJambaMlpRules},
     .meta = JambaMeta,
     .layer = JambaLayer,
     .adjust = JambaAdjust,
     .defaults = R"({"max_position_embeddings": 262144, "num_key_value_heads": 8,
                     "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
                     "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2,
                     "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2,
                     "mamba_dt_rank": "auto"})",
     .final_norm = "final_layernorm",
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias"},
};

ValueId BuildJamba(Builder& b, ValueId x) {
    return PreNormLayers(b, x, [&](ValueId h) {
        if (b.HasState()) return b.Mamba(h);
        const ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
        return b.FromHeads(b.Attention(q, k, b.ToKvHeads(h, "attn_v", false)), "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"jamba", "Jamba", "Mamba, attention without positions", "jamba, jambaDense"},
     .build = BuildJamba,
     .experts = true,
     .traits = {.rotates = false, .renormalises = false, .recurrent = Recurrent::Kind::kMamba}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::jamba
