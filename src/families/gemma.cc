// Gemma 1 (Gemma Team 2024): Llama's block with GeGLU, RoPE over halves and the embedding times
// sqrt(hidden). Gemma 2 (2024) and 3 (2025), text: as Gemma 1, with norms before and after
// attention and MLP. Gemma 2 has windows in every second layer and soft caps on scores and logits.
// Gemma 3 has windows in five of six layers, with another RoPE base, and normed query and key heads
// instead of the caps. Norms are 1 + w in folders; GGUF files have the 1 added.
#include "families/family.h"

namespace weft::families::gemma {

constexpr std::string_view kGelu = "gelu_pytorch_tanh";

// For Gemma 2, readers assume a cap if the key is missing, so null is written as 0.
Status SoftCap(const Config& config, MetaWriter& meta, std::string_view key) {
    if (!config.Has(key)) {
        if (meta.architecture() == "gemma2") meta.F32(key, 0);
        return {};
    }
    WEFT_ASSIGN(const double cap, config.NeedF64({key}));
    if (!(cap > 0)) return config.Corrupt(key, "more than 0, or null");
    meta.F32(key, cap);
    return {};
}

Status GemmaMeta(const Config& config, MetaWriter& meta, bool (*slides)(int64_t layer)) {
    WEFT_TRY(config.MustBe("use_bidirectional_attention", meta.family().encoder));
    WEFT_TRY(WriteCommon(config, meta, kGelu));
    WEFT_TRY(SoftCap(config, meta, "attn_logit_softcapping"));
    WEFT_TRY(SoftCap(config, meta, "final_logit_softcapping"));
    WEFT_ASSIGN(const double scalar, config.NeedF64({"query_pre_attn_scalar"}));
    if (!(scalar > 0)) return config.Corrupt("query_pre_attn_scalar", "more than 0");
    meta.F32("attention.scale", 1 / std::sqrt(scalar));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, 1ll << 31, 0));
    return WriteWindow(config, meta, window, slides);
}

// Old folders name the exact GELU but mean the tanh form, as transformers does.
Result<Config> Gemma1Adjust(const Config& config) {
    WEFT_ASSIGN(const std::string said, config.StringOr({"hidden_act"}, std::string(kGelu)));
    if (said != "gelu") return config;
    const Json over = {{"hidden_act", kGelu}};
    return config.With(over);
}

Status Gemma1Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(config.MustBe("use_bidirectional_attention", false));
    return WriteCommon(config, meta, kGelu);
}

Status Gemma2Meta(const Config& config, MetaWriter& meta) {
    return GemmaMeta(config, meta, [](int64_t layer) { return layer % 2 == 0; });
}

// Every sixth layer has full attention, with its own RoPE base and scaling. transformers and other
// readers ignore a cap of scores.
Status Gemma3Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const int64_t step,
                config.IntOr({"sliding_window_pattern", "_sliding_window_pattern"}, 1, 4096, 6));
    if (step != 6 && !config.Has("layer_types")) {
        return config.Corrupt("sliding_window_pattern", "6, or a layer_types key");
    }
    const Config uncapped = config.With(Json{{"attn_logit_softcapping", nullptr}});
    WEFT_TRY(GemmaMeta(uncapped, meta, [](int64_t layer) { return (layer + 1) % 6 != 0; }));
    return WriteWindowedBase(config, meta);
}

constexpr Rule kNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm},
};
constexpr Rule kVaultRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Form::kNorm},
};

Result<bool> SeesLaterTokens(const Config& config) {
    return config.BoolOr({"use_bidirectional_attention"}, false);
}

// EmbeddingGemma is an encoder.
constexpr Family Gemma3(bool encoder) {
    return {.model_type = "gemma3_text",
            .also = "gemma3",
            .architecture = encoder ? "gemma-embedding" : "gemma3",
            .rules = {kNormRules, kAttentionRules, kQkNormRules, kMlpRules},
            .meta = Gemma3Meta,
            .norm_add = 1,
            .defaults = R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
                            "max_position_embeddings": 131072, "rope_theta": 1000000.0,
                            "rope_local_base_freq": 10000.0, "sliding_window": 4096,
                            "query_pre_attn_scalar": 256, "tie_word_embeddings": true,
                            "vocab_size": 262208})",
            .rope = {.by_layer_type = true, .windowed_base = "rope_local_base_freq"},
            .encoder = encoder,
            .fits = encoder ? SeesLaterTokens : nullptr,
            .caps = "attn_logit_softcapping final_logit_softcapping",
            .written = {.name = encoder ? "" : "Gemma3ForCausalLM",
                        .windows = ClassWindows::kByLayer,
                        .pattern = 6,
                        .scales = ClassScales::kGemma,
                        .layers_by_hidden = 62}};
}

constexpr Family kGemma2 = {
    .model_type = "gemma2",
    .architecture = "gemma2",
    .rules = {kNormRules, kAttentionRules, kMlpRules},
    .meta = Gemma2Meta,
    .norm_add = 1,
    .defaults = R"({"max_position_embeddings": 8192, "head_dim": 256, "num_key_value_heads": 4,
                    "sliding_window": 4096, "query_pre_attn_scalar": 256,
                    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                    "tie_word_embeddings": true})",
    .caps = "attn_logit_softcapping final_logit_softcapping",
    .written = {.name = "Gemma2ForCausalLM",
                .windows = ClassWindows::kByLayer,
                .window = 4096,
                .pattern = 2,
                .scales = ClassScales::kGemma,
                .layers_by_hidden = 46,
                .attention_cap = 50,
                .logit_cap = 30}};
constexpr Family kFolders[] = {
    {.model_type = "gemma",
     .architecture = "gemma",
     .meta = Gemma1Meta,
     .norm_add = 1,
     .adjust = Gemma1Adjust,
     .defaults = R"({"max_position_embeddings": 8192, "head_dim": 256,
                     "num_key_value_heads": 16, "tie_word_embeddings": true})",
     .caps = "final_logit_softcapping"},
    kGemma2,
    Like(kGemma2,
         [](Family& family) {
             family.model_type = "vaultgemma";
             family.architecture = "vaultgemma";
             family.rules = {kVaultRules, kAttentionRules, kMlpRules};
             family.written = {};
         }),
    Gemma3(true),
    Gemma3(false),
};

ValueId BuildLayers(Builder& b, ValueId x, bool normed_heads) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId a = NormedAttention(b, b.Norm(x, "attn_norm", hidden), normed_heads);
        x = b.Add(x, b.Norm(a, "post_attention_norm", hidden));
        const ValueId m = b.Mlp(b.Norm(x, "ffn_norm", hidden));
        x = b.Add(x, b.Norm(m, "post_ffw_norm", hidden));
    }
    return x;
}

ValueId BuildGemma2(Builder& b, ValueId x) {
    return BuildLayers(b, x, false);
}

ValueId BuildGemma3(Builder& b, ValueId x) {
    return BuildLayers(b, x, true);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"gemma", "Gemma 1", "as llama, with GeGLU", "gemma1"},
     .build = RotatedLayers,
     .traits = {.activation = Activation::kGeluTanh, .embeds_by_root = true}},
    {.family = {"gemma2", "Gemma 2", "windows, soft caps", "gemma2"},
     .build = BuildGemma2,
     .traits = {.window = 4096,
                .window_pattern = 2,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .attention_cap = 50,
                .logit_cap = 30,
                .layers_by_hidden = 46}},
    {.family = {"gemma3", "Gemma 3 (text)", "windows, RoPE of two bases", "gemma3, gemma3Caps"},
     .build = BuildGemma3,
     .traits = {.window_pattern = 6,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .layers_by_hidden = 62,
                .plain_windows = true,
                .windowed_base = 10000}},
    {.family = {"gemma-embedding", "EmbeddingGemma (folders)",
                "an encoder: as gemma3, with attention to later tokens", "embeddingGemma"},
     .build = BuildGemma3,
     .traits = {.encoder = true,
                .window_pattern = 6,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .plain_windows = true,
                .windowed_base = 10000}},
    {.family = {"vaultgemma", "VaultGemma", "windows, soft caps", "vaultgemma"},
     .build = RotatedLayers,
     .traits = {.activation = Activation::kGeluTanh, .embeds_by_root = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gemma
