// Kimi Linear: layers of Kimi Delta Attention, and latent attention without positions. Ling 3: the
// same with positions, gates per head, and bounded decays. GLM-5-next: bounded decays, an indexer
// of pooled keys, and hyper-connections.
#include <algorithm>
#include <cmath>

#include "model_files/hf/kimi_delta.h"

namespace weft::model_files::hf {
namespace {

// Layer types from linear_attn_config, which lists layer numbers from 1.
Result<Json> NamedTypes(const Config& attention, int64_t layers) {
    WEFT_ASSIGN(const std::vector<int64_t> full, attention.Ints({"full_attn_layers"}));
    WEFT_ASSIGN(const std::vector<int64_t> kda, attention.Ints({"kda_layers"}));
    Json types = Json::array();
    for (int64_t layer = 1; layer <= layers; ++layer) {
        const bool attends = std::ranges::find(full, layer) != full.end();
        if (attends == (std::ranges::find(kda, layer) != kda.end())) {
            return attention.Corrupt(
                "kda_layers",
                fmt::format("each of {} layers, either here or in full_attn_layers", layers));
        }
        types.push_back(attends ? "full_attention" : "linear_attention");
    }
    return types;
}

// Takes the keys of published folders, in linear_attn_config.
Status TakeAttention(const Config& config, Json& over) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const Config attention, config.Sub({"linear_attn_config"}));
    const std::pair<const char*, const char*> names[] = {
        {"head_dim", "linear_head_dim"},
        {"num_heads", "linear_num_heads"},
        {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
    for (const auto& [from, to] : names) {
        if (!attention.Has(from)) continue;
        WEFT_ASSIGN(over[to], attention.NeedInt({from}, 1, 4096));
    }
    if (config.Has("layer_types")) return {};
    if (attention.Has("full_attn_layers") && attention.Has("kda_layers")) {
        WEFT_ASSIGN(over["layer_types"], NamedTypes(attention, layers));
        return {};
    }
    over["layer_types"] = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool attends = layer > 0 && layer % 4 == 0;
        over["layer_types"].push_back(attends ? "full_attention" : "linear_attention");
    }
    return {};
}

Result<Config> KimiLinearAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("mla_use_nope", true));
    Json over = Json::object();
    WEFT_TRY(TakeRenamed(config, over));
    WEFT_TRY(TakeAttention(config, over));
    return WithDenseLayers(config.With(over));
}

// ---- Ling 3 -------------------------------------------------------------------------------------

Result<Config> Ling3Adjust(const Config& config) {
    for (const char* key : {"no_kda_lora", "kda_safe_gate", "rope_interleave"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    constexpr std::string_view kGates = "gated_attention_proj_granularity_type";
    WEFT_TRY(config.MustBe(kGates, "head_wise"));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t usual, config.NeedInt({"head_dim"}, 1, 1024));
    WEFT_ASSIGN(const int64_t dim, config.IntOr({"linear_head_dim"}, 1, 1024, usual));
    WEFT_ASSIGN(const int64_t taps, config.NeedInt({"short_conv_kernel_size"}, 2, 64));
    Json over = {
        {"linear_num_heads", heads}, {"linear_head_dim", dim}, {"linear_conv_kernel_dim", taps}};
    WEFT_TRY(TakeRenamed(config, over));
    if (config.Has("moe_shared_expert_intermediate_size")) {
        over["shared_expert_intermediate_size"] =
            config.json()["moe_shared_expert_intermediate_size"];
    }
    if (!config.Has("layer_types")) {
        // The last layer of each group has attention, and so do those after the last whole group.
        WEFT_ASSIGN(const int64_t group, config.NeedInt({"layer_group_size"}, 1, 4096));
        over["layer_types"] = Json::array();
        for (int64_t layer = 0; layer < layers; ++layer) {
            const bool attends = (layer + 1) % group == 0 || layer >= layers / group * group;
            over["layer_types"].push_back(attends ? "full_attention" : "linear_attention");
        }
    }
    return WithDenseLayers(config.With(over));
}

// Limits of gated units, one per layer; null: none.
Status WriteUnitLimits(const Config& config, MetaWriter& meta, std::string_view from,
                       std::string_view key) {
    if (!config.Has(from)) return {};
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    std::vector<float> limits;
    for (const Json& limit : config.json()[from]) {
        if (!limit.is_null() && !limit.is_number()) {
            return config.Corrupt(from, "a list of numbers and null");
        }
        limits.push_back(limit.is_null() ? 0.0f : limit.get<float>());
    }
    limits.resize(static_cast<size_t>(layers));
    meta.F32s(key, limits);
    return {};
}

Status Ling3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(KdaMeta(config, meta));
    WEFT_ASSIGN(const double floor, config.NeedF64({"kda_lower_bound"}));
    if (!(floor < 0 && floor > -100)) {
        return config.Corrupt("kda_lower_bound", "a number from -100 to below 0");
    }
    meta.Bool("kda.safe_gate", true);
    meta.F32("kda.gate_lower_bound", floor);
    WEFT_TRY(WriteUnitLimits(config, meta, "expert_swiglu_limit_list", "swiglu_clamp_exp"));
    WEFT_TRY(WriteUnitLimits(config, meta, "share_expert_swiglu_limit_list", "swiglu_clamp_shexp"));
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// ---- GLM-5-next ---------------------------------------------------------------------------------

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

// ---- Tensors ------------------------------------------------------------------------------------

Status KimiLinearLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> kda, KdaLayers(assembly.config()));
    if (kda[static_cast<size_t>(layer)]) {
        return KdaLayer(assembly, layer, prefix + "self_attn.", -1);
    }
    return SplitKvB(assembly, layer, prefix + "self_attn.kv_b_proj");
}

// f_proj and g_proj are full matrices; attention's g_proj has one row per head.
Status Ling3Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<bool> kda, KdaLayers(assembly.config()));
    const bool has_state = kda[static_cast<size_t>(layer)];
    const std::string module = prefix + "attention.";
    WEFT_ASSIGN(MatrixPtr gates, assembly.Linear(module + "g_proj"));
    if (gates == nullptr) return assembly.Missing(module + "g_proj.weight");
    assembly.Add(Assembly::Block(layer, has_state ? "ssm_g_a.weight" : "attn_gate.weight"),
                 std::move(gates));
    if (has_state) return KdaLayer(assembly, layer, module, 1);
    return SplitKvB(assembly, layer, module + "kv_b_proj");
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
    WEFT_ASSIGN(const std::vector<bool> kda, KdaLayers(assembly.config()));
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
constexpr Rule kKimiMoeRules[] = {
    {"ffn_%", "mlp.%_proj", Form::kLinear, false},
    {"ffn_%", "block_sparse_moe.%_proj", Form::kLinear, false},  // saved by transformers
    {"ffn_gate_inp", "block_sparse_moe.gate", Form::kRouter, false},
    {"ffn_%_exps", "block_sparse_moe.experts.*.w%", Form::kExperts, false},
};
constexpr Rule kKimiSharedRules[] = {
    {"ffn_%_shexp", "block_sparse_moe.shared_experts.%_proj", Form::kLinear, false},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", Form::kVector, false},
};

constexpr Rule kLing3AttentionRules[] = {
    {"attn_q", "attention.q_proj", Form::kLinear, false},
    {"attn_q_a", "attention.q_a_proj", Form::kLinear, false},
    {"attn_q_a_norm", "attention.q_a_layernorm", Form::kNorm, false},
    {"attn_q_b", "attention.q_b_proj", Form::kLinear, false},
    {"attn_kv_a_mqa", "attention.kv_a_proj_with_mqa", Form::kLinear, false},
    {"attn_kv_a_norm", "attention.kv_a_layernorm", Form::kNorm, false},
    {"attn_output", "attention.dense", Form::kLinear},
};
constexpr Rule kLing3KdaRules[] = {
    {"attn_k", "attention.k_proj", Form::kLinear, false},
    {"attn_v", "attention.v_proj", Form::kLinear, false},
    {"ssm_f_a", "attention.f_proj", Form::kLinear, false},
    {"ssm_beta", "attention.b_proj", Form::kLinear, false},
    {"ssm_norm.weight", "attention.o_norm.weight", Form::kVector, false},
    {"exp_probs_b.bias", "mlp.gate.expert_bias", Form::kVector, false},
};

constexpr Family kKimiLinearFamilies[] = {
    {.model_type = "kimi_linear",
     .architecture = "kimi-linear",
     .rules = {kPreNormRules, kSomeLatentRules, kKdaRules, kKimiMoeRules, kKimiSharedRules},
     .meta = KdaMeta,
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .layer = KimiLinearLayer,
     .adjust = KimiLinearAdjust,
     .defaults = R"({"max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
                     "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                     "v_head_dim": 128, "num_experts": 256, "n_shared_experts": 1,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
                     "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                     "routed_scaling_factor": 2.446, "norm_topk_prob": true,
                     "linear_head_dim": 128, "linear_num_heads": 32,
                     "linear_conv_kernel_dim": 4})",
     .more_tensors = "attn_k_b.weight attn_v_b.weight ssm_conv1d_q.weight"},
    {.model_type = "bailing_hybrid",
     .architecture = "bailingmoe3",
     .rules = {kPreNormRules, kLing3AttentionRules, kLing3KdaRules, kMoeRules, kSharedExpertsRules},
     .meta = Ling3Meta,
     .routing = kGroupRouting,
     .layer = Ling3Layer,
     .adjust = Ling3Adjust,
     .defaults = R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "head_dim": 128,
                     "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                     "v_head_dim": 128, "num_experts": 512, "n_shared_experts": 1,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                     "first_k_dense_replace": 2, "n_group": 8, "topk_group": 4,
                     "routed_scaling_factor": 2.5, "norm_topk_prob": true,
                     "rope_theta": 6000000.0, "kda_lower_bound": -5.0,
                     "short_conv_kernel_size": 4, "layer_group_size": 6})",
     .embedding = "word_embeddings",
     .more_tensors = "attn_k_b.weight attn_v_b.weight attn_gate.weight ssm_conv1d_q.weight"},
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

}  // namespace

extern const std::span<const Family> kKimiLinearModels = kKimiLinearFamilies;

}  // namespace weft::model_files::hf
