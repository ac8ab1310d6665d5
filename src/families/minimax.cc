// MiniMax-M2 (MiniMax 2025): q and k are each normed over all heads, half of a head is rotated, and
// all layers have experts, routed by sigmoids with a bias. MiniMax M3 (2026): Qwen 3's layers, with
// clamped SwiGLU and an indexer that chooses the blocks of positions that a row attends to.
#include "families/family.h"

namespace weft::families::minimax {

// attn_type_list: 0 is linear attention, which MiniMax M1 has in some layers.
Status MinimaxMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::vector<int64_t> types, config.Ints({"attn_type_list"}));
    if (std::ranges::find(types, 0) != types.end()) {
        return config.Corrupt("attn_type_list", "1 for each layer");
    }
    WEFT_TRY(WriteCommon(config, meta));
    return WriteExperts(config, meta, "intermediate_size", "sigmoid");
}

// For each layer 1 if an indexer chooses its blocks, else 0: from layer_types, else from the key of
// published folders. With neither, no layer has an indexer.
Result<Json> SparseLayers(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    std::vector<int64_t> sparse;
    for (const std::string& type : types) {
        sparse.push_back(type == "minimax_m3_sparse" ? 1 : 0);
        if (type == "full_attention" || type == "minimax_m3_sparse") continue;
        return config.Corrupt("layer_types", "'full_attention' or 'minimax_m3_sparse'");
    }
    if (sparse.empty()) {
        WEFT_ASSIGN(const Config published, config.Sub({"sparse_attention_config"}));
        WEFT_ASSIGN(sparse, published.Ints({"sparse_attention_freq"}));
    }
    if (sparse.empty()) sparse.resize(static_cast<size_t>(layers));
    if (sparse.size() != static_cast<size_t>(layers)) {
        return config.Corrupt(types.empty() ? "sparse_attention_freq" : "layer_types",
                              "an entry for each layer");
    }
    return Json(sparse);
}

// Checks what transformers assumes: no first blocks are always chosen, and a block's score is the
// highest of its keys' scores.
Status CheckSparseAttention(const Config& sparse) {
    for (const std::string_view key : {"sparse_init_block", "sparse_init_tokens"}) {
        WEFT_ASSIGN(const int64_t first, sparse.IntOr({key}, 0, 1 << 20, 0));
        if (first != 0) return sparse.Corrupt(key, "0");
    }
    WEFT_TRY(sparse.MustBe("sparse_score_type", "max"));
    return sparse.MustBe("use_sparse_attention", true);
}

// Renames MiniMax M3's keys to the usual ones. Published folders have the indexer's sizes in a
// separate object, and a list of 0 and 1 per layer instead of types.
Result<Config> MinimaxM3Adjust(const Config& config) {
    for (const std::string_view key : {"use_gemma_norm", "use_qk_norm"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_TRY(config.MustBe("qk_norm_type", "per_head"));
    WEFT_ASSIGN(const std::string act, config.StringOr({"hidden_act"}, "swigluoai"));
    if (act != "silu" && act != "swigluoai") return config.Corrupt("hidden_act", "'swigluoai'");
    WEFT_TRY(CheckClampedUnits(config));
    WEFT_ASSIGN(const Json sparse_layers, SparseLayers(config));
    WEFT_ASSIGN(const int64_t expert, config.NeedInt({"intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t dense, config.NeedInt({"dense_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"shared_intermediate_size"}, 1, 1 << 20));
    Json json = {{"hidden_act", "silu"},        {"moe_intermediate_size", expert},
                 {"intermediate_size", dense},  {"shared_expert_intermediate_size", shared},
                 {"n_shared_experts", nullptr}, {"layer_types", nullptr},
                 {"norm_topk_prob", true},      {"sparse_layers", sparse_layers}};
    WEFT_ASSIGN(const std::vector<int64_t> experts, config.Ints({"moe_layer_freq"}));
    if (!experts.empty() && !config.Has("mlp_layer_types")) {
        json["mlp_layer_types"] = Json::array();
        for (const int64_t has : experts) {
            json["mlp_layer_types"].push_back(has != 0 ? "sparse" : "dense");
        }
    }
    WEFT_ASSIGN(const Config sparse, config.Sub({"sparse_attention_config"}));
    WEFT_TRY(CheckSparseAttention(sparse));
    for (const auto& [key, from] : {std::pair{"index_n_heads", "sparse_num_index_heads"},
                                    std::pair{"index_head_dim", "sparse_index_dim"},
                                    std::pair{"index_block_size", "sparse_block_size"},
                                    std::pair{"index_topk_blocks", "sparse_topk_blocks"},
                                    std::pair{"index_local_blocks", "sparse_local_block"}}) {
        if (!sparse.Has(from)) continue;
        WEFT_ASSIGN(const int64_t value, sparse.NeedInt({from}, 0, 1 << 20));
        json[key] = value;
    }
    return WithDenseLayers(config.With(json));
}

// Includes the indexer's sizes, as llama.cpp's converter writes them.
Status MinimaxM3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "sigmoid"));
    // llama.cpp needs the shared expert's size as a number of routed experts.
    WEFT_ASSIGN(const int64_t expert, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t shared,
                config.NeedInt({"shared_expert_intermediate_size"}, 1, 1 << 20));
    if (shared % expert == 0) meta.Int("expert_shared_count", shared / expert);
    WEFT_TRY(WriteNumbers(config, meta,
                          {{"attention.indexer.head_count", "index_n_heads"},
                           {"attention.indexer.key_length", "index_head_dim"},
                           {"attention.indexer.block_size", "index_block_size"},
                           {"attention.indexer.top_k", "index_topk_blocks"},
                           {"attention.indexer.local_blocks", "index_local_blocks"}}));
    WEFT_ASSIGN(const std::vector<int64_t> layers, config.Ints({"sparse_layers"}));
    meta.Bools("attention.indexer.types", std::vector<bool>(layers.begin(), layers.end()));
    return {};
}

// In addition to Mixtral's rules: dense layers, shared experts, and the indexer under the names of
// published folders and of transformers' model. The indexer's norms also get the family's norm_add.
constexpr Rule kMinimaxM3Rules[] = {
    {"ffn_%", "mlp.%_proj", Form::kLinear, false},
    {"ffn_%_shexp", "block_sparse_moe.shared_experts.%_proj", Form::kLinear, false},
    {"indexer.q_proj", "self_attn.index_q_proj", Form::kLinear, false},
    {"indexer.k_proj", "self_attn.index_k_proj", Form::kLinear, false},
    {"indexer.q_norm", "self_attn.index_q_norm", Form::kNorm, false},
    {"indexer.k_norm", "self_attn.index_k_norm", Form::kNorm, false},
};

constexpr Family kFolders[] = {
    {.model_type = "minimax_m2",
     .architecture = "minimax-m2",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kBlockSparseMoeRules, kMoeRules},
     .meta = MinimaxMeta,
     .defaults = R"({"max_position_embeddings": 196608, "rope_theta": 5000000.0, "head_dim": 128,
                     "norm_topk_prob": true})",
     .rope = {.partial = true}},
    {.model_type = "minimax_m3_vl",
     .also = "minimax_m3_vl_text",
     .architecture = "minimax-m3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kBlockSparseMoeRules, kMinimaxM3Rules},
     .meta = MinimaxM3Meta,
     .routing = "routed_scaling_factor",
     .norm_add = 1,
     .adjust = MinimaxM3Adjust,
     .defaults = R"({"max_position_embeddings": 524288, "rms_norm_eps": 1e-6,
                     "rope_theta": 5000000.0, "head_dim": 128, "num_key_value_heads": 4,
                     "rotary_dim": 64, "intermediate_size": 3072,
                     "dense_intermediate_size": 12288, "shared_intermediate_size": 3072,
                     "num_local_experts": 128, "num_experts_per_tok": 4,
                     "routed_scaling_factor": 2.0, "index_n_heads": 4,
                     "index_head_dim": 128, "index_block_size": 128,
                     "index_topk_blocks": 16, "index_local_blocks": 1})",
     .rope = {.partial = true}},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"minimax-m2", "MiniMax M2", "norms over all heads, partial RoPE", "minimaxM2"},
     .build = NormedRowLayers,
     .experts = true,
     .traits = {.gate_score = GateScore::kSigmoid}},
    {.family = {"minimax-m3", "MiniMax M3 (text)",
                "block-sparse attention, normed heads, partial RoPE, clamped SwiGLU, leading dense "
                "layers",
                "minimaxM3, minimaxM3Top"},
     .build = NormedHeadLayers,
     .experts = true,
     .traits = {.activation = Activation::kClampedSilu,
                .indexer = IndexerKind::kBlocks,
                .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::minimax
