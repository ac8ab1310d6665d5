// Latent attention of Hugging Face folders (DeepSeek-V2 and later). GGUF splits the projection from
// the latent to keys and values (kv_b) into two tensors: K's part, transposed per head so that it
// can be absorbed into the query, and V's part. Rotated dims are in neighboring pairs in GGUF, and
// in folders unless rope_interleave is false.
#pragma once

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {

// Writes the sizes of the latents.
Status LatentMeta(const Config& config, MetaWriter& meta);
// Writes all keys of a model but those of experts and of an indexer.
Status LatentModelMeta(const Config& config, MetaWriter& meta);
// As LatentModelMeta, with the keys of experts.
Status LatentExpertsMeta(const Config& config, MetaWriter& meta, std::string_view gating);

// Writes the sizes of DeepSeek's indexer; IndexerLayersMeta also writes which layers have one.
Status IndexerMeta(const Config& config, MetaWriter& meta);
Status IndexerLayersMeta(const Config& config, MetaWriter& meta);
// kCorrupt: config.json has an indexer_rope_interleave, and it is not `neighbours`.
Status CheckIndexerRope(const Config& config, bool neighbours);
// Every layer has a type with a name of its own.
Result<Config> IndexedAdjust(const Config& config);

// blk.N.attn_k_b [heads, latent, plain] and attn_v_b [heads, value, latent].
Status SplitHeads(Assembly& assembly, int64_t layer, const std::string& module, int64_t plain);
// The same with the number of plain dims in config.json.
Status SplitKvB(Assembly& assembly, int64_t layer, const std::string& module);
// Family::layer of models whose `module` is self_attn.kv_b_proj.
Status LatentLayer(Assembly& assembly, int64_t layer, const std::string& prefix);

inline constexpr Rule kLatentRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery, false},  // or through a latent
    {"attn_q_a", "self_attn.q_a_proj", Form::kLinear, false},
    {"attn_q_a_norm", "self_attn.q_a_layernorm", Form::kNorm, false},
    {"attn_q_b", "self_attn.q_b_proj", Form::kQuery, false},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", Form::kKey},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", Form::kNorm},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
};
// DeepSeek's indexer.
inline constexpr Rule kIndexerRules[] = {
    {"indexer.attn_q_b", "self_attn.indexer.wq_b", Form::kLinear, false},
    {"indexer.attn_k", "self_attn.indexer.wk", Form::kLinear, false},
    {"indexer.proj", "self_attn.indexer.weights_proj", Form::kLinear, false},
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", Form::kVector, false},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", Form::kVector, false},
};

// A family with DeepSeek-V3's attention and experts, and rows that differ from it.
constexpr Family LatentFamily(std::string_view model_type,
                              Status (*meta)(const Config&, MetaWriter&),
                              std::string_view defaults = "{}",
                              Result<Config> (*adjust)(const Config&) = nullptr,
                              std::string_view architecture = "deepseek2") {
    return {.model_type = model_type,
            .architecture = architecture,
            .rules = {kPreNormRules, kLatentRules, kMoeRules, kSharedExpertsRules},
            .meta = meta,
            .routing = kGroupRouting,
            .layer = LatentLayer,
            .adjust = adjust,
            .defaults = defaults,
            .rope = {.reads_interleave = true},
            .draft_head = &kDeepseekDraftHead,
            .more_tensors =
                "attn_k_b.weight attn_v_b.weight attn_q_a.bias?attention_bias "
                "attn_kv_a_mqa.bias?attention_bias attn_output.bias?attention_bias"};
}

// The same with dense MLPs.
constexpr Family DenseLatentFamily(std::string_view model_type, std::string_view defaults) {
    Family family = LatentFamily(model_type, LatentModelMeta, defaults);
    family.rules = {kPreNormRules, kLatentRules, kMlpRules};
    return family;
}

// The same with an indexer.
constexpr Family IndexedFamily(std::string_view model_type, std::string_view architecture,
                               Status (*meta)(const Config&, MetaWriter&),
                               std::string_view defaults) {
    Family family = LatentFamily(model_type, meta, defaults, IndexedAdjust, architecture);
    family.rules[4] = kIndexerRules;
    family.rope.reads_interleave = false;
    return family;
}

}  // namespace weft::model_files::hf
