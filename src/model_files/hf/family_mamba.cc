// Models with Mamba layers: Jamba, Mamba and Falcon-Mamba; and Mamba-2 without attention.
#include "model_files/hf/mamba.h"

namespace weft::model_files::hf {
namespace {

// ---- Jamba --------------------------------------------------------------------------------------

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

// ---- Mamba, Falcon-Mamba and Mamba-2 ------------------------------------------------------------

// No layer has attention or an MLP. (Of both head keys, readers need a number.)
Result<Config> MambaAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 2, kMostColumns));
    WEFT_ASSIGN(const int64_t expand, config.NeedInt({"expand"}, 1, 64));
    WEFT_TRY(config.MustBe("use_conv_bias", true));
    WEFT_TRY(CheckSteps(config));
    const std::vector<int64_t> none(static_cast<size_t>(layers), 0);
    int64_t inner = expand * hidden;
    if (config.Has("intermediate_size")) {
        WEFT_ASSIGN(inner, config.NeedInt({"intermediate_size"}, 1, kMostColumns));
    }
    Json over = {{"num_attention_heads", 1},
                 {"head_dim", 2},
                 {"num_key_value_heads", none},
                 {"intermediate_size", none},
                 {"inner_size", inner}};
    if (config.json()["time_step_rank"] == "auto") over["time_step_rank"] = (hidden + 15) / 16;
    return Renamed(config.With(over), {{"rms_norm_eps", "layer_norm_epsilon"}});
}

Status MambaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    return WriteMambaSizes(config, meta);
}

// Steps, B and C are normed without weights, with an epsilon of their own.
Status FalconMambaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(MambaMeta(config, meta));
    meta.Bool("ssm.dt_b_c_rms", true);
    WEFT_ASSIGN(const double eps, config.F64Or({"mixer_rms_eps"}, 1e-6));
    meta.F32("ssm.norm_rms_epsilon", eps);
    return {};
}

Result<MambaShape> Mamba2Shape(const Config& config) {
    MambaShape s{};
    WEFT_ASSIGN(s.heads, config.NeedInt({"num_heads"}, 1, 4096));
    WEFT_ASSIGN(s.head_dim, config.NeedInt({"mamba_head_dim"}, 1, 1024));
    WEFT_ASSIGN(s.groups, config.NeedInt({"n_groups"}, 1, s.heads));
    WEFT_ASSIGN(s.state, config.NeedInt({"state_size"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"conv_kernel"}, 2, 64));
    return s;
}

Result<Config> Mamba2Adjust(const Config& config) {
    return MambaAdjust(Renamed(config, {{"mamba_head_dim", "head_dim"}})
                           .With(Json{{"intermediate_size", nullptr}}));
}

Status Mamba2Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const MambaShape shape, Mamba2Shape(config));
    WriteMamba(shape, meta);
    return {};
}

Status Mamba2Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const MambaShape shape, Mamba2Shape(assembly.config()));
    return AddMamba(assembly, layer, prefix + "mixer.", shape);
}

// ---- Tensors ------------------------------------------------------------------------------------

Status JambaLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<int64_t> kv, assembly.config().Ints({"num_key_value_heads"}));
    if (kv[static_cast<size_t>(layer)] != 0) return {};
    return AddChannels(assembly, layer, prefix + "mamba.");
}

Status MambaLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return AddChannels(assembly, layer, prefix + "mixer.");
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
constexpr Rule kMambaRules[] = {
    {"attn_norm", "norm", Form::kNorm},           {"ssm_in", "mixer.in_proj", Form::kLinear},
    {"ssm_x", "mixer.x_proj", Form::kLinear},     {"ssm_dt", "mixer.dt_proj", Form::kLinear},
    {"ssm_out", "mixer.out_proj", Form::kLinear},
};
// (PEFT adapts no out_proj of this family.)
constexpr Rule kMamba2Rules[] = {
    {"attn_norm", "norm", Form::kNorm},
    {"ssm_in", "mixer.in_proj", Form::kNamed},
};

constexpr std::string_view kMambaDefaults =
    R"({"max_position_embeddings": 1048576, "conv_kernel": 4, "state_size": 16, "expand": 2,
        "time_step_rank": "auto", "layer_norm_epsilon": 1e-5, "use_conv_bias": true,
        "tie_word_embeddings": true})";

constexpr Family kMambaFamilies[] = {
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
    {.model_type = "mamba",
     .architecture = "mamba",
     .rules = {kMambaRules},
     .meta = MambaMeta,
     .layer = MambaLayer,
     .adjust = MambaAdjust,
     .defaults = kMambaDefaults,
     .embedding = "embeddings",
     .final_norm = "norm_f",
     .path = "backbone",
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias"},
    {.model_type = "falcon_mamba",
     .architecture = "mamba",
     .rules = {kMambaRules},
     .meta = FalconMambaMeta,
     .layer = MambaLayer,
     .adjust = MambaAdjust,
     .defaults = kMambaDefaults,
     .embedding = "embeddings",
     .final_norm = "norm_f",
     .path = "backbone",
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias"},
    {.model_type = "mamba2",
     .architecture = "mamba2",
     .rules = {kMamba2Rules},
     .meta = Mamba2Meta,
     .layer = Mamba2Layer,
     .adjust = Mamba2Adjust,
     .defaults = R"({"max_position_embeddings": 1048576, "num_heads": 128, "head_dim": 64,
                     "state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2,
                     "layer_norm_epsilon": 1e-5, "use_conv_bias": true})",
     .embedding = "embeddings",
     .final_norm = "norm_f",
     .path = "backbone",
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias ssm_norm.weight"},
};

}  // namespace

extern const std::span<const Family> kMambaModels = kMambaFamilies;

}  // namespace weft::model_files::hf
