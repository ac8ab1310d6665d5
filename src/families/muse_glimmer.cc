// Muse Glimmer (Meta 2026): Trinity's layers with a normed embedding. Its norms after attention and
// MLP have an epsilon that no key of its GGUF files holds.
#include "families/family.h"
#include "model_files/hf/mixed_layers.h"

namespace weft::families::muse_glimmer {

// Layers without a window (every fourth, counted from the last) have no RoPE.
Result<Config> MuseAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    std::vector<std::string> types;
    WEFT_ASSIGN(types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(types, EachLayers(config, "layer_types", std::move(types)));
    for (int64_t layer = static_cast<int64_t>(types.size()); layer < layers; ++layer) {
        types.emplace_back((layers - 1 - layer) % 4 == 0 ? kOfAll : kOfWindow);
    }
    if (config.Has("layer_rope_theta")) {
        const Json& bases = config.json()["layer_rope_theta"];
        bool fits = bases.is_array() && static_cast<int64_t>(bases.size()) == layers;
        for (size_t layer = 0; fits && layer < types.size(); ++layer) {
            fits = bases[layer].is_number() && (bases[layer] != 0) == (types[layer] == kOfWindow);
        }
        if (!fits) {
            return config.Corrupt("layer_rope_theta", "0 for exactly the layers without a window");
        }
    }
    WEFT_TRY(config.MustBe("attention_bias", false));
    WEFT_ASSIGN(const double eps, config.NeedF64({"post_norm_eps"}));
    if (eps != 1e-8)
        return config.Corrupt("post_norm_eps", "1e-8, since GGUF files have no key for it");
    return config.With(Json{{"layer_types", types}});
}

Status MuseMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    constexpr const char* kCap = "final_logit_softcapping";
    for (const auto& [key, from] :
         {std::pair{"logit_scale", "output_multiplier"}, std::pair{kCap, kCap}}) {
        WEFT_ASSIGN(const double value, config.NeedF64({from}));
        if (!(value > 0)) return config.Corrupt(from, "more than 0");
        meta.F32(key, value);
    }
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    return WriteWindow(config, meta, window, nullptr);
}

// Heads are normed without weights, and queries are scaled: adds weights with that effect.
Status MuseLayer(Assembly& assembly, int64_t layer, const std::string&) {
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(assembly.config()));
    WEFT_ASSIGN(const double scale, assembly.config().NeedF64({"qk_scale_factor"}));
    const auto count = static_cast<size_t>(head_dim);
    assembly.AddVector(Assembly::Block(layer, "attn_q_norm.weight"),
                       FromFloats(std::vector<float>(count, static_cast<float>(scale))));
    assembly.AddVector(Assembly::Block(layer, "attn_k_norm.weight"),
                       FromFloats(std::vector<float>(count, 1.0f)));
    return {};
}

constexpr Rule kMuseRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm},
    {"attn_gate", "self_attn.gate_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "muse_glimmer",
     .also = "muse_glimmer_text",
     .architecture = "muse-glimmer",
     .rules = {kMuseRules, kAttentionRules, kMlpRules},
     .meta = MuseMeta,
     .layer = MuseLayer,
     .pairs = true,
     .norm_add = 1,
     .plain_final_norm = true,
     .adjust = MuseAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "head_dim": 128, "num_key_value_heads": 2, "sliding_window": 2048,
                     "final_logit_softcapping": 20.0, "qk_scale_factor": 3.87,
                     "output_multiplier": 0.19611613513818404, "post_norm_eps": 1e-8})",
     .caps = "final_logit_softcapping",
     .more_tensors = "attn_gate.columns"},
};
constexpr float kMusePostEps = 1e-8f;

ValueId BuildMuseGlimmer(Builder& b, ValueId x) {
    if (b.shard().layers.begin == 0) x = b.NormPlain(x, b.hyper().hidden);
    return GatedNormLayers(b, x, true, kMusePostEps);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"muse-glimmer", "Muse Glimmer (text)",
                "gates by column, norms on both sides, windows, layers without positions",
                "museGlimmer"},
     .build = BuildMuseGlimmer,
     .traits = {.window_pattern = 4, .logit_factor = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::muse_glimmer
