// MiniCPM 1 and 2 (OpenBMB 2024): Granite's layers. MiniCPM 3: latent attention; what attention and
// the MLP add is scaled.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::minicpm {

// Renames its factors to Granite's keys.
Result<Config> MiniCpmAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_experts"}, 0, 1 << 16, 0));
    if (experts != 0) return config.Corrupt("num_experts", "0: experts are not supported");
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const double embedding, config.NeedF64({"scale_emb"}));
    WEFT_ASSIGN(const double depth, config.NeedF64({"scale_depth"}));
    WEFT_ASSIGN(const int64_t base, config.NeedInt({"dim_model_base"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t dim, config.IntOr({"head_dim"}, 1, 1024, hidden / heads));
    const Json over = {{"embedding_multiplier", embedding},
                       {"residual_multiplier", depth / std::sqrt(static_cast<double>(layers))},
                       {"logits_scaling", static_cast<double>(hidden) / static_cast<double>(base)},
                       {"attention_multiplier", 1 / std::sqrt(static_cast<double>(dim))}};
    return config.With(over);
}

// The factors of MiniCPM, under Granite's keys.
Status MiniCpm3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentModelMeta(config, meta));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const double embedding, config.NeedF64({"scale_emb"}));
    WEFT_ASSIGN(const double depth, config.NeedF64({"scale_depth"}));
    WEFT_ASSIGN(const int64_t base, config.NeedInt({"dim_model_base"}, 1, kMostColumns));
    meta.F32("embedding_scale", embedding);
    meta.F32("residual_scale", depth / std::sqrt(static_cast<double>(layers)));
    meta.F32("logit_scale", static_cast<double>(hidden) / static_cast<double>(base));
    return {};
}

constexpr Family kFolders[] = {
    {.model_type = "minicpm",
     .architecture = "minicpm",
     .meta = WriteScales,
     .pairs = true,
     .adjust = MiniCpmAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "scale_emb": 1, "scale_depth": 1,
                     "dim_model_base": 1, "tie_word_embeddings": true})"},
    // Dense MLPs and the factors of MiniCPM.
    Like(DenseLatentFamily("minicpm3",
                           R"({"max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                               "kv_lora_rank": 256, "q_lora_rank": 768, "qk_rope_head_dim": 32,
                               "qk_nope_head_dim": 64, "v_head_dim": 64, "scale_emb": 12,
                               "scale_depth": 1.4, "dim_model_base": 256,
                               "tie_word_embeddings": true})"),
         [](Family& family) {
             family.architecture = "minicpm3";
             family.meta = MiniCpm3Meta;
             family.rope.reads_interleave = false;
             family.draft_head = nullptr;
         }),
};

ValueId BuildMiniCpm3(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    const float residual = b.hyper().residual_scale;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.Scale(b.LatentAttention(b.Norm(x, "attn_norm", hidden)), residual));
        x = b.Add(x, b.Scale(b.Mlp(b.Norm(x, "ffn_norm", hidden)), residual));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"minicpm", "MiniCPM", "scales", "minicpm"},
     .build = ScaledLayers,
     .traits = {.granite_scales = true, .cpm_scales = true}},
    {.family = {"minicpm3", "MiniCPM 3", "latent attention, LongRoPE, scales", "minicpm3"},
     .build = BuildMiniCpm3,
     .traits = {.granite_scales = true, .cpm_scales = true, .latent_halves = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::minicpm
