// GLM-5-next (Z.ai 2026): three of four layers are Kimi Delta Attention with bounded decays, the
// fourth is latent attention without positions, to windows that an indexer chooses from pooled
// keys; between several residual streams.
#include "families/family.h"
#include "model_files/hf/kimi_delta.h"

namespace weft::families::glm5_next {

constexpr double kGlm5NextFloor = -5;  // of decays

// Attention layers have types of several names. A layer without an indexer uses the choice of the
// layer before it.
Result<Config> Glm5NextAdjust(const Config& config) {
    for (const char* key : {"mla_use_nope", "mhc", "index_kpool_always_select_tail"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_TRY(config.MustBe("attention_bias", false));
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 0, 1024));
    if (rotary != 0) return config.Corrupt("qk_rope_head_dim", "0");
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const std::vector<std::string> indexers, config.Strings({"indexer_types"}));
    for (int64_t layer = 0; layer < layers && types.size() < static_cast<size_t>(layers); ++layer) {
        types.emplace_back(layer % 4 == 3 ? "full_attention" : "linear_attention");
    }
    for (size_t layer = 0; layer < types.size(); ++layer) {
        const bool attends = types[layer] != "linear_attention";
        const bool shares = attends && layer < indexers.size() && indexers[layer] == "shared";
        if (shares && types[layer - std::min<size_t>(layer, 1)] != "full_attention") {
            return config.Corrupt("indexer_types", "'full' after a layer without attention");
        }
        if (types[layer] == "indexed_attention" || types[layer] == "deepseek_sparse_attention") {
            types[layer] = "full_attention";
        }
    }
    WEFT_ASSIGN(const Config linear, config.Sub({"linear_attn_config"}));
    Json over = {{"layer_types", types}};
    const std::pair<const char*, const char*> names[] = {
        {"head_dim", "linear_head_dim"},
        {"num_heads", "linear_num_heads"},
        {"short_conv_kernel_size", "linear_conv_kernel_dim"},
        {"gate_lower_bound", "linear_lower_bound"}};
    constexpr std::string_view kFloor = "linear_lower_bound";
    over[kFloor] = config.Names(kFloor) ? config.json()[kFloor] : Json(kGlm5NextFloor);
    for (const auto& [from, to] : names) {
        if (linear.Names(from)) over[to] = linear.json()[from];
    }
    WEFT_ASSIGN(const bool safe, linear.BoolOr({"safe_gate"}, !linear.json().empty()));
    if (safe && over[kFloor].is_null()) over[kFloor] = kGlm5NextFloor;
    if (!config.Has("mlp_layer_types") && !config.Has("first_k_dense_replace")) {
        over["first_k_dense_replace"] = std::min<int64_t>(layers, 3);
    }
    return WithDenseLayers(config.With(over));
}

Status Glm5NextMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(KdaMeta(config, meta));
    WEFT_TRY(IndexerLayersMeta(config, meta));
    WEFT_TRY(WriteNumbers(config, meta,
                          {{"attention.indexer.kpool", "index_kpool"},
                           {"hyper_connection.count", "hc_mult"},
                           {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"}}));
    WEFT_ASSIGN(const double eps, config.NeedF64({"hc_eps"}));
    meta.F32("hyper_connection.epsilon", eps);
    if (config.Has("linear_lower_bound")) {  // null: decays are not bounded
        WEFT_ASSIGN(const double floor, config.NeedF64({"linear_lower_bound"}));
        meta.F32("kda.gate_lower_bound", floor);
    }
    WEFT_ASSIGN(const double limit, config.NeedF64({"swiglu_limit"}));
    meta.F32("swiglu_clamp_exp", limit);
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// Adds a tensor, whose name in the folder has no ".weight", as an F32 matrix.
Status AddFloats(Assembly& assembly, int64_t layer, std::string_view gguf,
                 const std::string& name) {
    WEFT_ASSIGN(MatrixPtr matrix, assembly.Checked(assembly.Tensor(name), name, 0));
    assembly.Add(Assembly::Block(layer, gguf), Converted(std::move(matrix), DType::kF32));
    return {};
}

Status Glm5NextLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    for (const char* part : {"hc_attn_fn", "hc_ffn_fn"}) {
        WEFT_TRY(AddFloats(assembly, layer, std::string(part) + ".weight", prefix + part));
    }
    const std::string attention = prefix + "self_attn.", kpool = "indexer.index_kpool_compress_";
    if (assembly.Has(attention + kpool + "ape")) {
        for (const std::string part : {"ape", "gate"}) {
            WEFT_TRY(AddFloats(assembly, layer, "indexer_compressor_" + part + ".weight",
                               attention + kpool + part));
        }
    }
    WEFT_ASSIGN(const std::vector<bool> kda, LayersOfType(assembly.config(), "linear_attention"));
    if (kda[static_cast<size_t>(layer)]) return KdaLayer(assembly, layer, attention, -1);
    return SplitKvB(assembly, layer, attention + "kv_b_proj");
}

constexpr Rule kGlm5NextStreams[] = {
    {"hc_attn_base.weight", "hc_attn_base", Form::kVector},
    {"hc_attn_scale.weight", "hc_attn_scale", Form::kVector},
    {"hc_ffn_base.weight", "hc_ffn_base", Form::kVector},
    {"hc_ffn_scale.weight", "hc_ffn_scale", Form::kVector},
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
};

constexpr Family kFolders[] = {
    {.model_type = "glm5_next",
     .also = "glm5_next_text",
     .architecture = "glm5-next",
     .rules = {kGlm5NextStreams, kSomeLatentRules, kKdaRules, kMoeRules, kSharedExpertsRules,
               kIndexerRules},
     .meta = Glm5NextMeta,
     .routing = kGroupRouting,
     .layer = Glm5NextLayer,
     .adjust = Glm5NextAdjust,
     .defaults = R"({"max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
                     "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 0,
                     "qk_nope_head_dim": 256, "v_head_dim": 256, "n_routed_experts": 288,
                     "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 2048, "n_group": 1, "topk_group": 1,
                     "routed_scaling_factor": 2.5, "norm_topk_prob": true, "index_topk": 2048,
                     "index_head_dim": 128, "index_n_heads": 32, "index_kpool": 16, "hc_mult": 4,
                     "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "swiglu_limit": 10.0,
                     "linear_head_dim": 128, "linear_num_heads": 64,
                     "linear_conv_kernel_dim": 4})",
     .more_tensors = "hc_attn_fn.weight hc_ffn_fn.weight attn_k_b.weight attn_v_b.weight "
                     "ssm_conv1d_q.weight indexer_compressor_gate.weight "
                     "indexer_compressor_ape.weight"},
};

constexpr Architecture kArchitectures[] = {
    {.family =
         {"glm5-next", "GLM 5.3 Flash (text)",
          "hyper-connections, Kimi Delta Attention, sparse latent attention without positions, "
          "an indexer of pooled keys, leading dense layers",
          "glm5Next, glm5NextTop"},
     .build = LatentStreamLayers,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .rotates_latents = false,
                .usual_latent_eps = true,
                .indexer = IndexerKind::kAlways,
                .streams = Streams::kMean,
                .gate_score = GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kKimiDelta}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::glm5_next
