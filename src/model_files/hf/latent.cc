#include "model_files/hf/latent.h"

#include <algorithm>

namespace weft::model_files::hf {
namespace {

// The config for WriteCommon: one KV head, with heads of only the rotated dims.
Result<Config> OneKvHead(const Config& config) {
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 2, kMostColumns));
    const Json json = {{"num_key_value_heads", 1}, {"head_dim", rotary}};
    return config.With(json);
}

Status WriteRouting(const Config& config, MetaWriter& meta, std::string_view gating) {
    WEFT_ASSIGN(const std::string method, config.StringOr({"topk_method"}, ""));
    if (method != "greedy") return WriteExperts(config, meta, "moe_intermediate_size", gating);
    const Json json = {{"n_group", nullptr}, {"topk_group", nullptr}};
    return WriteExperts(config.With(json), meta, "moe_intermediate_size", gating);
}

// Whether each layer of GLM 5 has an indexer of its own. The config gives the layers' types, or a
// pattern of F (full) and S (shared). Otherwise these are all layers before layer
// index_skip_topk_offset - 1, and from there on every index_topk_freq-th layer.
Result<std::vector<bool>> OwnIndexers(const Config& config) {
    std::vector<bool> own;
    const std::string expected = "'full' or 'shared' for each layer, 'full' for the first";
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"indexer_types"}));
    WEFT_ASSIGN(const std::string pattern, config.StringOr({"index_topk_pattern"}, ""));
    for (const char c : types.empty() ? pattern : "") types.emplace_back(1, c);
    for (const std::string& type : types) {
        own.push_back(type == "full" || type == "F");
        const bool known = own.back() || type == "shared" || type == "S";
        if (!known) return config.Corrupt("indexer_types", expected);
    }
    if (own.empty()) {
        WEFT_ASSIGN(const int64_t each, config.IntOr({"index_topk_freq"}, 1, kMostLayers, 1));
        WEFT_ASSIGN(const int64_t skip,
                    config.IntOr({"index_skip_topk_offset"}, 0, kMostLayers, 2));
        for (int64_t layer = 0; layer < layers; ++layer) {
            own.push_back(std::max<int64_t>(layer - skip + 1, 0) % each == 0);
        }
    }
    if (static_cast<int64_t>(own.size()) < layers || !own[0]) {
        return config.Corrupt("indexer_types", expected);
    }
    return own;
}

bool IsFloat(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

Status LatentMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const int64_t latent, config.NeedInt({"kv_lora_rank"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 0, kMostColumns));
    WEFT_ASSIGN(const int64_t plain, config.NeedInt({"qk_nope_head_dim"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t value, config.NeedInt({"v_head_dim"}, 1, kMostColumns));
    if (config.Has("q_lora_rank")) {
        WEFT_ASSIGN(const int64_t query, config.NeedInt({"q_lora_rank"}, 1, kMostColumns));
        meta.Int("attention.q_lora_rank", query);
    }
    meta.Int("attention.kv_lora_rank", latent);
    meta.Int("attention.key_length", latent + rotary);
    meta.Int("attention.value_length", latent);
    meta.Int("attention.key_length_mla", plain + rotary);
    meta.Int("attention.value_length_mla", value);
    return {};
}

Status LatentModelMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool neighbours, config.BoolOr({"rope_interleave"}, true));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"moe_layer_freq"}, 1, 4096, 1));
    if (step != 1) return config.Corrupt("moe_layer_freq", "1");
    if (!neighbours && !meta.family().rope.reads_interleave)
        return config.Corrupt("rope_interleave", "true");
    if (!neighbours) meta.Bool("rope.rows_reordered", true);  // Weft's own key, for adapters
    WEFT_ASSIGN(const Config common, OneKvHead(config));
    WEFT_TRY(WriteCommon(common, meta));
    return LatentMeta(config, meta);
}

Status LatentExpertsMeta(const Config& config, MetaWriter& meta, std::string_view gating) {
    WEFT_TRY(LatentModelMeta(config, meta));
    return WriteRouting(config, meta, gating);
}

Status IndexerMeta(const Config& config, MetaWriter& meta) {
    return WriteNumbers(config, meta,
                        {{"attention.indexer.head_count", "index_n_heads"},
                         {"attention.indexer.key_length", "index_head_dim"},
                         {"attention.indexer.top_k", "index_topk"}});
}

Status IndexerLayersMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(IndexerMeta(config, meta));
    WEFT_ASSIGN(const std::vector<bool> own, OwnIndexers(config));
    meta.Bools("attention.indexer.types", own);
    return {};
}

Status CheckIndexerRope(const Config& config, bool neighbours) {
    constexpr std::string_view kKey = "indexer_rope_interleave";
    WEFT_ASSIGN(const bool pairs, config.BoolOr({kKey}, neighbours));
    if (pairs == neighbours) return {};
    return config.Corrupt(kKey, neighbours ? "true" : "false");
}

Result<Config> IndexedAdjust(const Config& config) {
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    const bool usual = std::ranges::all_of(
        types, [](const std::string& type) { return type == "indexed_attention"; });
    if (!usual) return config.Corrupt("layer_types", "'indexed_attention' for all layers");
    const Json json = {{"layer_types", nullptr}};
    return WithDenseLayers(config.With(json));
}

Status SplitHeads(Assembly& assembly, int64_t layer, const std::string& module, int64_t plain) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t value, config.NeedInt({"v_head_dim"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(MatrixPtr keys, assembly.Linear(module));
    WEFT_ASSIGN(MatrixPtr values, assembly.Linear(module));
    if (keys == nullptr || keys->rows() != heads * (plain + value)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: '{}' is missing, or does not have {} rows ({} heads of {} + {} dims)",
                         assembly.folder(), module, heads * (plain + value), heads, plain, value);
    }
    const int64_t latent = keys->cols();
    keys = SomeRows(std::move(keys), 0, plain, plain + value, heads * plain);
    if (!IsFloat(keys->dtype())) {  // FP8 times a scale may exceed the range of F16
        const bool fp8 = keys->dtype() == DType::kFP8;
        keys = Converted(std::move(keys), fp8 ? DType::kBF16 : DType::kF16);
    }
    assembly.Add(Assembly::Block(layer, "attn_k_b.weight"), Transposed(std::move(keys), plain),
                 {plain, latent, heads});
    assembly.Add(Assembly::Block(layer, "attn_v_b.weight"),
                 SomeRows(std::move(values), plain, value, plain + value, heads * value),
                 {latent, value, heads});
    return {};
}

Status SplitKvB(Assembly& assembly, int64_t layer, const std::string& module) {
    WEFT_ASSIGN(const int64_t plain,
                assembly.config().NeedInt({"qk_nope_head_dim"}, 1, kMostColumns));
    return SplitHeads(assembly, layer, module, plain);
}

Status LatentLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return SplitKvB(assembly, layer, prefix + "self_attn.kv_b_proj");
}

}  // namespace weft::model_files::hf
