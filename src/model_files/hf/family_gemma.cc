// Gemma 1 to 3 (text): norms are 1 + w in the folder and have the 1 added in GGUF.
#include <cmath>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

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
            .caps = "attn_logit_softcapping final_logit_softcapping"};
}

constexpr Family kFamilies[] = {
    {.model_type = "gemma",
     .architecture = "gemma",
     .meta = Gemma1Meta,
     .norm_add = 1,
     .adjust = Gemma1Adjust,
     .defaults = R"({"max_position_embeddings": 8192, "head_dim": 256,
                     "num_key_value_heads": 16, "tie_word_embeddings": true})",
     .caps = "final_logit_softcapping"},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .rules = {kNormRules, kAttentionRules, kMlpRules},
     .meta = Gemma2Meta,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 8192, "head_dim": 256, "num_key_value_heads": 4,
                     "sliding_window": 4096, "query_pre_attn_scalar": 256,
                     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                     "tie_word_embeddings": true})",
     .caps = "attn_logit_softcapping final_logit_softcapping"},
    {.model_type = "vaultgemma",
     .architecture = "vaultgemma",
     .rules = {kVaultRules, kAttentionRules, kMlpRules},
     .meta = Gemma2Meta,
     .norm_add = 1,
     .defaults = R"({"max_position_embeddings": 8192, "head_dim": 256, "num_key_value_heads": 4,
                     "sliding_window": 4096, "query_pre_attn_scalar": 256,
                     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                     "tie_word_embeddings": true})",
     .caps = "attn_logit_softcapping final_logit_softcapping"},
    Gemma3(true),
    Gemma3(false),
};

}  // namespace

extern const std::span<const Family> kGemmaModels = kFamilies;

}  // namespace weft::model_files::hf
