// Mamba (Gu and Dao 2023), Falcon-Mamba (2024) and Mamba-2 (Dao and Gu 2024): only recurrent
// layers.
#include "model_files/hf/mamba.h"
#include "families/family.h"

namespace weft::families::mamba {

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
    if (config.Has("time_step_rank") && config.json()["time_step_rank"] == "auto") {
        over["time_step_rank"] = (hidden + 15) / 16;
    }
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

Status MambaLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return AddChannels(assembly, layer, prefix + "mixer.");
}

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

constexpr Family kMamba = {.model_type = "mamba",
                           .architecture = "mamba",
                           .rules = {kMambaRules},
                           .meta = MambaMeta,
                           .layer = MambaLayer,
                           .adjust = MambaAdjust,
                           .defaults = kMambaDefaults,
                           .embedding = "embeddings",
                           .final_norm = "norm_f",
                           .path = "backbone",
                           .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias"};
constexpr Family kFolders[] = {
    kMamba,
    Like(kMamba,
         [](Family& family) {
             family.model_type = "falcon_mamba";
             family.meta = FalconMambaMeta;
         }),
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

ValueId BuildMamba(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const bool second = b.hyper().recurrent.kind == Recurrent::Kind::kMamba2;
        x = b.Add(x, second ? b.Mamba2(h) : b.Mamba(h));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"mamba", "Mamba, Falcon-Mamba (folders)", "Mamba, no attention",
                "mamba, falconMamba"},
     .build = BuildMamba,
     .traits = {.rotates = false, .recurrent = Recurrent::Kind::kMamba}},
    {.family = {"mamba2", "Mamba-2, Codestral Mamba (folders)", "Mamba-2, no attention", "mamba2"},
     .build = BuildMamba,
     .traits = {.rotates = false, .recurrent = Recurrent::Kind::kMamba2}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mamba
