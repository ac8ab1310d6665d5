// Granite 3 and 4 (IBM 2024, 2025), dense and with experts: Llama's block, with factors on the
// embedding, on the outputs of attention and MLP, on scores and on logits. Most layers of Granite 4
// H are Mamba-2, and its attention has no positions. Bamba (IBM 2024) has the same Mamba-2 layers.
#include "families/family.h"
#include "model_files/hf/mamba.h"

namespace weft::families::granite {

Status GraniteMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteScales(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "softmax");
}

constexpr Rule kGraniteMoeRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer", Form::kRouter},
};

// By layer: true: Mamba-2, false: attention.
Result<std::vector<bool>> GraniteLayers(const Config& config) {
    constexpr std::string_view kKey = "layer_types";
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({kKey, "layers_block_type"}));
    std::vector<bool> mamba(types.empty() ? static_cast<size_t>(layers) : 0, true);
    for (const std::string& type : types) {
        const bool state = type == "mamba" || type == "linear_attention";
        if (!state && type != "attention" && type != "full_attention") {
            return config.Corrupt(kKey, "only mamba and attention");
        }
        mamba.push_back(state);
    }
    if (static_cast<int64_t>(mamba.size()) == layers) return mamba;
    return config.Corrupt(kKey, fmt::format("{} values, one per layer", layers));
}

Result<bool> GraniteHasState(const Config& config) {
    WEFT_ASSIGN(const std::vector<bool> mamba, GraniteLayers(config));
    return std::ranges::find(mamba, true) != mamba.end();
}

Result<bool> GraniteHasExperts(const Config& config) {
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_local_experts"}, 0, 1 << 16, 8));
    return experts > 0;
}

// In a model without experts, the shared MLP is the only MLP.
Result<Config> GraniteHybridAdjust(const Config& config) {
    WEFT_TRY(CheckSteps(config));
    WEFT_ASSIGN(const std::vector<bool> mamba, GraniteLayers(config));
    WEFT_ASSIGN(const bool experts, GraniteHasExperts(config));
    WEFT_ASSIGN(const int64_t shared,
                config.NeedInt({"shared_intermediate_size"}, 1, kMostColumns));
    Json over = {{"layer_types", Json::array()}, {"norm_topk_prob", true}};
    over[experts ? "shared_expert_intermediate_size" : "intermediate_size"] = shared;
    if (std::ranges::find(mamba, true) != mamba.end()) {
        WEFT_ASSIGN(const int64_t kv,
                    config.NeedInt({"num_key_value_heads", "num_attention_heads"}, 1, 4096));
        Json heads = Json::array(), kept = Json::array();
        for (const bool state : mamba) {
            heads.push_back(state ? 0 : kv);
            kept.push_back(state ? "mamba" : "attention");
        }
        over["num_key_value_heads"] = heads;
        over["layers_block_type"] = kept;
    }
    return config.With(over);
}

Result<MambaShape> GraniteShape(const Config& config) {
    MambaShape s{};
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t expand, config.NeedInt({"mamba_expand"}, 1, 64));
    WEFT_ASSIGN(s.heads, config.NeedInt({"mamba_n_heads"}, 1, 4096));
    WEFT_ASSIGN(s.groups, config.NeedInt({"mamba_n_groups"}, 1, s.heads));
    WEFT_ASSIGN(s.state, config.NeedInt({"mamba_d_state"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"mamba_d_conv"}, 2, 64));
    s.head_dim = expand * hidden / s.heads;
    const bool by_hand = config.Has("mamba_d_head") && config.json()["mamba_d_head"] != "auto";
    int64_t head_dim = s.head_dim;
    if (by_hand) {
        WEFT_ASSIGN(head_dim, config.NeedInt({"mamba_d_head"}, 1, 1024));
    }
    if (s.head_dim == head_dim && head_dim * s.heads == expand * hidden) return s;
    return config.Corrupt(
        by_hand ? "mamba_d_head" : "mamba_n_heads",
        fmt::format("{} heads with {} x {} columns in total", s.heads, expand, hidden));
}

Status GraniteHybridMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteScales(config, meta));
    WEFT_ASSIGN(const bool experts, GraniteHasExperts(config));
    if (experts) WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    WEFT_ASSIGN(const std::string positions, config.StringOr({"position_embedding_type"}, "nope"));
    if (positions != "rope" && positions != "nope") {
        return config.Corrupt("position_embedding_type", "'rope' or 'nope'");
    }
    meta.Bool("rope.scaling.finetuned", positions == "rope");  // how llama.cpp marks RoPE
    if (meta.architecture() != "granitehybrid") return {};
    WEFT_ASSIGN(const MambaShape shape, GraniteShape(config));
    WriteMamba(shape, meta);
    return {};
}

// RoPE by layer: layers with a window have one base, all others another; 0: no RoPE.
Result<Config> GraniteWindowAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"layer_types"}));
    for (int64_t i = static_cast<int64_t>(types.size()); i < layers; ++i) {
        types.push_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
    }
    Json over = {{"layer_types", types}, {"norm_topk_prob", true}};
    WEFT_ASSIGN(const int64_t shared,
                config.IntOr({"shared_intermediate_size"}, 0, kMostColumns, 0));
    if (shared > 0) over["shared_expert_intermediate_size"] = shared;
    WEFT_ASSIGN(const std::vector<double> bases, config.Floats({"layer_rope_theta"}));
    if (bases.empty()) return config.With(over);
    double known[2] = {0, 0};  // of full and of windowed layers
    Json rotated = Json::array();
    for (size_t i = 0; i < types.size(); ++i) {
        double& base = known[types[i] == "sliding_attention" ? 1 : 0];
        if (i >= bases.size() || bases[i] < 0 || (base != 0 && bases[i] != 0 && bases[i] != base)) {
            return config.Corrupt("layer_rope_theta",
                                  "one base for layers with a window, and one "
                                  "for all others");
        }
        if (bases[i] != 0) base = bases[i];
        rotated.push_back(bases[i] != 0 ? 1 : 0);
    }
    over["rope_layers"] = std::move(rotated);
    WEFT_ASSIGN(const Config rope, config.Sub({"rope_parameters"}));
    const double usual = known[0] != 0 ? known[0] : known[1];
    if (usual != 0) over["rope_parameters"] = rope.With(Json{{"rope_theta", usual}}).json();
    if (known[1] != 0) over["windowed_theta"] = known[1];
    return config.With(over);
}

Status GraniteWindowMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteScales(config, meta));
    if (meta.architecture() == "granitemoe") {
        WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    }
    WEFT_ASSIGN(const std::vector<int64_t> rotated, config.Ints({"rope_layers"}));
    if (!rotated.empty()) meta.Ints("rope.layers", rotated);
    if (config.Has("windowed_theta")) {
        WEFT_ASSIGN(const double base, config.NeedF64({"windowed_theta"}));
        meta.F32("rope.freq_base_swa", base);
    }
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, 1ll << 31, 0));
    return WriteWindow(config, meta, window, [](int64_t) { return true; });
}

Result<Config> GraniteSharedAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t shared,
                config.IntOr({"shared_intermediate_size"}, 0, kMostColumns, 0));
    Json over = {{"norm_topk_prob", true}};
    if (shared > 0) over["shared_expert_intermediate_size"] = shared;
    return config.With(over);
}

Status GraniteSharedMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteScales(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "softmax");
}

// shared_mlp.input_linear holds the gate before the up projection.
Status SharedMlp(Assembly& assembly, int64_t layer, const std::string& prefix, bool experts) {
    const std::string end = experts ? "_shexp.weight" : ".weight";
    for (const int64_t half : {0, 1}) {
        WEFT_ASSIGN(MatrixPtr both, assembly.Linear(prefix + "shared_mlp.input_linear"));
        if (both == nullptr || both->rows() % 2 != 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}shared_mlp.input_linear' is missing, or does not have two "
                             "equal halves",
                             assembly.folder(), prefix);
        }
        const int64_t rows = both->rows() / 2;
        assembly.Add(Assembly::Block(layer, (half == 0 ? "ffn_gate" : "ffn_up") + end),
                     SomeRows(std::move(both), half * rows, rows, 2 * rows, rows));
    }
    WEFT_ASSIGN(MatrixPtr down, assembly.Linear(prefix + "shared_mlp.output_linear"));
    if (down == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}shared_mlp.output_linear' is missing",
                         assembly.folder(), prefix);
    }
    assembly.Add(Assembly::Block(layer, "ffn_down" + end), std::move(down));
    return {};
}

Status GraniteSharedTensors(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const bool shared = assembly.config().Has("shared_expert_intermediate_size");
    return shared ? SharedMlp(assembly, layer, prefix, true) : Status();
}

Status GraniteHybridTensors(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const bool experts, GraniteHasExperts(config));
    WEFT_TRY(SharedMlp(assembly, layer, prefix, experts));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layers_block_type"}));
    if (types.empty() || types[static_cast<size_t>(layer)] != "mamba") return {};
    WEFT_ASSIGN(const MambaShape shape, GraniteShape(config));
    return AddMamba(assembly, layer, prefix + "mamba.", shape);
}

Result<Config> BambaAdjust(const Config& config) {
    WEFT_TRY(CheckSteps(config));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<int64_t> attends, config.Ints({"attn_layer_indices"}));
    WEFT_ASSIGN(const int64_t kv,
                config.NeedInt({"num_key_value_heads", "num_attention_heads"}, 1, 4096));
    Json heads = Json::array(), types = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool state = std::ranges::find(attends, layer) == attends.end();
        heads.push_back(state ? 0 : kv);
        types.push_back(state ? "mamba" : "attention");
    }
    return config.With(Json{{"num_key_value_heads", heads}, {"layers_block_type", types}});
}

Status BambaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const MambaShape shape, GraniteShape(config));
    WriteMamba(shape, meta);
    return {};
}

Status BambaTensors(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layers_block_type"}));
    if (types[static_cast<size_t>(layer)] != "mamba") return {};
    WEFT_ASSIGN(const MambaShape shape, GraniteShape(config));
    return AddMamba(assembly, layer, prefix + "mamba.", shape);
}

constexpr Rule kFeedForwardRules[] = {
    {"ffn_%", "feed_forward.%_proj", Form::kLinear},
};
constexpr Rule kSinkRules[] = {
    {"attn_sinks.weight", "self_attn.sinks", Form::kVector},
};
constexpr Rule kGraniteRouterRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer", Form::kRouter, false},
    {"ffn_gate_inp", "block_sparse_moe.router", Form::kRouter, false},
};
constexpr Rule kMambaNames[] = {
    {"ssm_in", "mamba.in_proj", Form::kNamed, false},
    {"ssm_out", "mamba.out_proj", Form::kNamed, false},
};
constexpr Rule kGraniteHybridRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer", Form::kRouter, false},
};
constexpr Family kGraniteDense = {
    .model_type = "granitemoehybrid",
    .architecture = "granite",
    .rules = {kPreNormRules, kSomeAttentionRules, kGraniteHybridRules, kMambaNames},
    .gate_up = "shared_mlp.input_linear",
    .down = "shared_mlp.output_linear",
    .meta = GraniteHybridMeta,
    .layer = GraniteHybridTensors,
    .pairs = true,
    .adjust = GraniteHybridAdjust,
    .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0,
                    "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0,
                    "num_local_experts": 8, "num_experts_per_tok": 2,
                    "shared_intermediate_size": 1024, "intermediate_size": 11008,
                    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256,
                    "mamba_d_conv": 4, "mamba_expand": 2})"};

// GGUF names are those of llama.cpp's converter.
constexpr Family GraniteWhere(std::string_view architecture, Result<bool> (*fits)(const Config&)) {
    Family family = kGraniteDense;
    family.architecture = architecture;
    family.fits = fits;
    if (fits == GraniteHasState) {
        family.more_tensors = "ssm_conv1d.weight ssm_conv1d.bias ssm_norm.weight";
    }
    return family;
}

constexpr std::string_view kGraniteExpertDefaults =
    R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0, "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8,
        "num_experts_per_tok": 2, "sliding_window": 128})";

constexpr Family kGraniteShared = {.model_type = "granitemoeshared",
                                   .architecture = "granitemoe",
                                   .rules = {kPreNormRules, kAttentionRules, kGraniteRouterRules},
                                   .gate_up = "shared_mlp.input_linear",
                                   .down = "shared_mlp.output_linear",
                                   .meta = GraniteSharedMeta,
                                   .layer = GraniteSharedTensors,
                                   .pairs = true,
                                   .adjust = GraniteSharedAdjust,
                                   .defaults = kGraniteExpertDefaults};
constexpr Family kFolders[] = {
    GraniteWhere("granitehybrid", GraniteHasState),
    GraniteWhere("granitemoe", GraniteHasExperts),
    kGraniteDense,
    {.model_type = "granite",
     .architecture = "granite",
     .meta = WriteScales,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0})",
     .written = {.name = "GraniteForCausalLM", .mlp_bias = true, .scales = ClassScales::kGranite}},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .rules = {kPreNormRules, kAttentionRules, kGraniteMoeRules},
     .meta = GraniteMoeMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "attention_multiplier": 1.0,
                     "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
                     "logits_scaling": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
                     "norm_topk_prob": true})"},
    kGraniteShared,
    Like(kGraniteShared,
         [](Family& family) {
             family.model_type = "granitemoe_swa";
             family.rules = {kPreNormRules, kAttentionRules, kGraniteRouterRules, kSinkRules};
             family.meta = GraniteWindowMeta;
             family.adjust = GraniteWindowAdjust;
             family.more_tensors = "attn_sinks.weight";
         }),
    {.model_type = "granite_swa",
     .architecture = "granite",
     .rules = {kPreNormRules, kAttentionRules, kMlpRules, kSinkRules},
     .meta = GraniteWindowMeta,
     .pairs = true,
     .adjust = GraniteWindowAdjust,
     .defaults = R"({"max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                     "attention_multiplier": 1.0, "embedding_multiplier": 1.0,
                     "residual_multiplier": 1.0, "logits_scaling": 1.0,
                     "num_key_value_heads": 4, "sliding_window": 128,
                     "tie_word_embeddings": true})",
     .more_tensors = "attn_sinks.weight"},
    {.model_type = "bamba",
     .architecture = "bamba",
     .rules = {kPreFfNormRules, kSomeAttentionRules, kFeedForwardRules, kMambaNames},
     .meta = BambaMeta,
     .layer = BambaTensors,
     .adjust = BambaAdjust,
     .defaults = R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_n_groups": 1,
                     "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
                     "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .final_norm = "final_layernorm",
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias ssm_norm.weight"},
};

ValueId BuildBamba(Builder& b, ValueId x) {
    return ScaledLayers(b, x, false);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"bamba", "Bamba", "Mamba-2, partial RoPE", "bamba"},
     .build = BuildBamba,
     .traits = {.recurrent = Recurrent::Kind::kMamba2}},
    {.family = {"granite", "Granite 3 (dense), Granite 4 Micro, with windows",
                "scales, windows, sinks", "granite, graniteMicro, graniteWindows"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
    {.family = {"granitehybrid", "Granite 4 H, dense and with experts",
                "scales, Mamba-2, attention without positions, a shared expert",
                "graniteHybrid, graniteHybridMoe"},
     .build = ScaledLayers,
     .experts = true,
     .traits = {.granite_scales = true,
                .marks_rotation = true,
                .recurrent = Recurrent::Kind::kMamba2,
                .may_lack_state = true}},
    {.family = {"granitemoe", "Granite 3 with experts", "scales, windows, sinks, a shared expert",
                "graniteMoe, graniteMoeShared, graniteMoeWindows"},
     .build = ScaledLayers,
     .experts = true,
     .traits = {.granite_scales = true, .marks_rotation = true, .lists_rotation = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::granite
