// Falcon-H1 (TII 2025): attention and a Mamba-2 layer in parallel on the same normed rows, then an
// MLP. The muP multipliers of a folder are multiplied into F32 weights, as in GGUF files. Other
// weights would be rounded again, so there the multipliers are tensors of their own, NAME.scale
// (Assembly::AddScaled).
#include "families/family.h"
#include "model_files/hf/folder_config.h"
#include "model_files/hf/mamba.h"

namespace weft::families::falcon_h1 {

// A muP multiplier.
Result<float> Multiplier(const Config& config, std::string_view key) {
    WEFT_ASSIGN(const double value, config.F64Or({key}, 1.0));
    if (value > 0 && value < 1e6) return static_cast<float>(value);
    return config.Corrupt(key, "a number above 0");
}

// `count` multipliers; all 1 if the key is absent.
Result<std::vector<float>> Multipliers(const Config& config, std::string_view key, size_t count) {
    WEFT_ASSIGN(const std::vector<double> list, config.Floats({key}));
    if (list.empty()) return std::vector<float>(count, 1.0f);
    const bool good = std::ranges::all_of(list, [](double v) { return v > 0 && v < 1e6; });
    if (good && list.size() == count) return std::vector<float>(list.begin(), list.end());
    return config.Corrupt(key, fmt::format("{} numbers above 0", count));
}

Result<Config> FalconAdjust(const Config& config) {
    WEFT_TRY(CheckSteps(config));
    WEFT_ASSIGN(const bool norms, config.BoolOr({"mamba_rms_norm"}, false));
    WEFT_ASSIGN(const bool before, config.BoolOr({"mamba_norm_before_gate"}, true));
    if (norms && before) {
        return config.Corrupt("mamba_norm_before_gate", "false: norm before gate is not supported");
    }
    return config;
}

Result<MambaShape> FalconShape(const Config& config) {
    MambaShape s{};
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t expand, config.NeedInt({"mamba_expand"}, 1, 64));
    WEFT_ASSIGN(const int64_t inner,
                config.IntOr({"mamba_d_ssm"}, 1, kMostColumns, expand * hidden));
    WEFT_ASSIGN(s.heads, config.NeedInt({"mamba_n_heads"}, 1, 4096));
    WEFT_ASSIGN(s.groups, config.NeedInt({"mamba_n_groups"}, 1, s.heads));
    WEFT_ASSIGN(s.state, config.NeedInt({"mamba_d_state"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"mamba_d_conv"}, 2, 64));
    s.head_dim = inner / s.heads;
    const bool by_hand = config.Has("mamba_d_head") && config.json()["mamba_d_head"] != "auto";
    int64_t head_dim = s.head_dim;
    if (by_hand) {
        WEFT_ASSIGN(head_dim, config.NeedInt({"mamba_d_head"}, 1, 1024));
    }
    if (s.head_dim == head_dim && head_dim * s.heads == inner) return s;
    return config.Corrupt(by_hand ? "mamba_d_head" : "mamba_n_heads",
                          fmt::format("{} heads with {} columns in total", s.heads, inner));
}

Status FalconMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const MambaShape shape, FalconShape(config));
    WriteMamba(shape, meta);
    return {};
}

// Whether the layer has the biases that config.json names.
Status CheckBiases(const Assembly& assembly, const std::string& prefix) {
    for (const auto& [key, module] : {std::pair{"attention_bias", "self_attn.q_proj"},
                                      std::pair{"mlp_bias", "feed_forward.up_proj"},
                                      std::pair{"mamba_proj_bias", "mamba.in_proj"},
                                      std::pair{"projectors_bias", "mamba.out_proj"}}) {
        WEFT_ASSIGN(const bool said, assembly.config().BoolOr({key}, false));
        const bool has = assembly.Has(fmt::format("{}{}.bias", prefix, module));
        if (said == has) continue;
        return assembly.config().Corrupt(key, fmt::format("{}, since there is {} '{}{}.bias'", has,
                                                          has ? "a" : "no", prefix, module));
    }
    return {};
}

struct FalconLinear {
    const char *gguf, *name;
    float scale, of_bias;
};

// The matrices of attention and MLP.
Result<std::vector<FalconLinear>> FalconLinears(const Config& config) {
    WEFT_ASSIGN(const float in, Multiplier(config, "attention_in_multiplier"));
    WEFT_ASSIGN(const float key, Multiplier(config, "key_multiplier"));
    WEFT_ASSIGN(const float out, Multiplier(config, "attention_out_multiplier"));
    WEFT_ASSIGN(const std::vector<float> mlp, Multipliers(config, "mlp_multipliers", 2));
    return std::vector<FalconLinear>{{"attn_q", "self_attn.q_proj", in, 1},
                                     {"attn_k", "self_attn.k_proj", in * key, key},
                                     {"attn_v", "self_attn.v_proj", in, 1},
                                     {"attn_output", "self_attn.o_proj", out, out},
                                     {"ffn_gate", "feed_forward.gate_proj", mlp[0], mlp[0]},
                                     {"ffn_up", "feed_forward.up_proj", 1, 1},
                                     {"ffn_down", "feed_forward.down_proj", mlp[1], mlp[1]}};
}

Result<MambaScales> FalconScales(const Config& config) {
    MambaScales scales;
    WEFT_ASSIGN(scales.in, Multipliers(config, "ssm_multipliers", 5));
    WEFT_ASSIGN(scales.input, Multiplier(config, "ssm_in_multiplier"));
    WEFT_ASSIGN(scales.out, Multiplier(config, "ssm_out_multiplier"));
    return scales;
}

// (A GGUF file does not have the multipliers.)
Result<std::vector<AdaptedPart>> FalconParts(const ModelSource& source) {
    std::vector<AdaptedPart> parts;
    if (source.folder().empty()) return parts;
    WEFT_ASSIGN(const FolderConfig folder, ReadFolderConfig(source.folder()));
    WEFT_ASSIGN(const std::vector<FalconLinear> linears, FalconLinears(folder.config));
    for (const FalconLinear& one : linears) {
        parts.push_back({.tensor = one.gguf, .module = one.name, .factor = one.scale});
    }
    WEFT_ASSIGN(const MambaShape s, FalconShape(folder.config));
    WEFT_ASSIGN(const MambaScales scales, FalconScales(folder.config));
    const int64_t rows[] = {s.inner(), s.inner(), s.shared(), s.shared(), s.heads};
    const int64_t all = 2 * s.inner() + 2 * s.shared() + s.heads;
    int64_t begin = 0;
    for (size_t i = 0; i < scales.in.size(); begin += rows[i++]) {
        parts.push_back({"ssm_in",
                         "mamba.in_proj",
                         begin,
                         rows[i],
                         {begin, rows[i], all},
                         {},
                         scales.in[i] * scales.input});
    }
    parts.push_back({.tensor = "ssm_out", .module = "mamba.out_proj", .factor = scales.out});
    return parts;
}

Status FalconTensors(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const MambaShape shape, FalconShape(config));
    WEFT_ASSIGN(const std::vector<FalconLinear> linears, FalconLinears(config));
    for (const auto& [gguf, name, scale, of_bias] : linears) {
        WEFT_TRY(assembly.AddScaledLinear(Assembly::Block(layer, gguf), prefix + name, 0,
                                          {{kMostColumns, scale}}, {{kMostColumns, of_bias}}));
    }
    WEFT_TRY(CheckBiases(assembly, prefix));
    WEFT_ASSIGN(const MambaScales scales, FalconScales(config));
    WEFT_TRY(AddMamba(assembly, layer, prefix + "mamba.", shape, scales));
    const bool norms = assembly.Has(prefix + "mamba.norm.weight");
    WEFT_ASSIGN(const bool said, config.BoolOr({"mamba_rms_norm"}, false));
    if (norms == said) return {};
    return config.Corrupt("mamba_rms_norm", norms ? "true, since there is a mamba.norm" : "false");
}

Result<EndScales> FalconEnds(const Config& config) {
    EndScales scales;
    WEFT_ASSIGN(scales.embedding, Multiplier(config, "embedding_multiplier"));
    WEFT_ASSIGN(scales.output, Multiplier(config, "lm_head_multiplier"));
    return scales;
}

// (llama.cpp's converter omits the suffix of ffn_norm's name.)
constexpr Rule kFalconRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "pre_ff_layernorm.weight", Form::kVector},
};

constexpr Family kFolders[] = {
    {.model_type = "falcon_h1",
     .architecture = "falcon-h1",
     .rules = {kFalconRules},
     .meta = FalconMeta,
     .layer = FalconTensors,
     .adapted = FalconParts,
     .adjust = FalconAdjust,
     .defaults = R"({"max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_n_groups": 1,
                     "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2})",
     .final_norm = "final_layernorm",
     .ends = FalconEnds,
     .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias ssm_norm.weight?mamba_rms_norm "
                     "attn_q.bias?attention_bias attn_k.bias?attention_bias "
                     "attn_v.bias?attention_bias attn_output.bias?attention_bias "
                     "ffn_gate.bias?mlp_bias ffn_up.bias?mlp_bias ffn_down.bias?mlp_bias "
                     "ssm_in.bias?mamba_proj_bias ssm_out.bias?projectors_bias"},
};

ValueId BuildFalconH1(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        const ValueId q = b.ScaleBy(b.ToHeads(h, "attn_q", false), "attn_q.scale");
        const ValueId k = b.ScaleBy(b.ToKvHeads(h, "attn_k", false), "attn_k.scale");
        const ValueId v = b.ScaleBy(b.ToKvHeads(h, "attn_v", false), "attn_v.scale");
        const ValueId a =
            b.FromHeads(b.Attention(b.Rope(q, false), b.Rope(k, false), v), "attn_output");
        x = b.Add(x, b.Add(b.ScaleBy(a, "attn_output.scale"), b.Mamba2(h)));

        // (llama.cpp's converter omits the suffix ".weight".)
        const char* const part = b.Has("ffn_norm") ? "" : "weight";
        const ValueId m = b.NormBy(x, "ffn_norm", part, b.hyper().hidden);
        const ValueId gate = b.ScaleBy(b.ToFfn(m, "ffn_gate"), "ffn_gate.scale");
        const ValueId down = b.FromFfn(b.Gated(gate, b.ToFfn(m, "ffn_up")), "ffn_down");
        x = b.Add(x, b.ScaleBy(down, "ffn_down.scale"));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"falcon-h1", "Falcon-H1", "attention beside Mamba-2 in each layer",
                "falconH1, falconH1Biases, falconH1Normed"},
     .build = BuildFalconH1,
     .traits = {.recurrent = Recurrent::Kind::kMamba2}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::falcon_h1
