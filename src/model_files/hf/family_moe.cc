// Mixtral, DBRX, Phi-3.5-MoE, gpt-oss, GLM 4.5 and 4.5V (text), Solar-Open, Hy3, MiniMax M2 and M3.
#include <algorithm>

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {
namespace {

Status MixtralMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    return WindowEverywhere(config, meta);
}

// The norms are LayerNorms, although their epsilon has the name of RMS norms'. GGUF has no key for
// the routing's jitter.
Status PhimoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const double jitter, config.F64Or({"router_jitter_noise"}, 0.01));
    if (jitter != 0.01) return config.Corrupt("router_jitter_noise", "0.01");
    return MixtralMeta(config, meta);
}

// Moves the magnitude of LongRoPE, which must be the same for short and long contexts, to the usual
// key.
Result<Config> PhimoeAdjust(const Config& config) {
    const std::string_view key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    WEFT_ASSIGN(const Config rope, config.Sub({key}));
    if (!rope.Has("short_mscale")) return config;
    WEFT_ASSIGN(const double near, rope.NeedF64({"short_mscale"}));
    WEFT_ASSIGN(const double far, rope.NeedF64({"long_mscale"}));
    if (near != far) return rope.Corrupt("long_mscale", "short_mscale");
    Json own = rope.json();
    for (const char* old : {"short_mscale", "long_mscale"}) own.erase(old);
    own["attention_factor"] = near;
    return config.With(Json{{std::string(key), std::move(own)}});
}

Status GptOssMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "intermediate_size", "softmax"));
    WEFT_TRY(CheckClampedUnits(config));
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1ll << 31));
    return WriteWindow(config, meta, window, [](int64_t layer) { return layer % 2 == 0; });
}

// All layers have experts, but the width of a dense MLP is still a required key.
Result<Config> SolarAdjust(const Config& config) {
    if (config.Has("intermediate_size")) return config;
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    const Json json = {{"intermediate_size", ffn}};
    return config.With(json);
}

// Renames Hy3's keys to the usual ones, and checks values that transformers assumes.
Result<Config> Hy3Adjust(const Config& config) {
    for (const std::string_view key : {"qk_norm", "route_norm", "moe_router_use_sigmoid"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t shared, config.NeedInt({"num_shared_experts"}, 0, 64));
    WEFT_ASSIGN(const double scale, config.NeedF64({"router_scaling_factor"}));
    const Json json = {{"shared_expert_intermediate_size", shared * ffn},
                       {"routed_scaling_factor", scale},
                       {"norm_topk_prob", true}};
    return WithDenseLayers(config.With(json));
}

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
constexpr Rule kGlmRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};
// Hy3's tensors, under the names of published folders and under those of transformers' model.
constexpr Rule kHy3Rules[] = {
    {"ffn_gate_inp", "mlp.router.gate", Form::kRouter, false},
    {"exp_probs_b", "mlp.expert_bias", Form::kVector, false},
    {"exp_probs_b", "mlp.e_score_correction_bias", Form::kVector, false},
    {"ffn_%_shexp", "mlp.shared_mlp.%_proj", Form::kLinear, false},
    {"ffn_%_shexp", "mlp.shared_experts.%_proj", Form::kLinear, false},
};
constexpr Rule kGptOssRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"attn_sinks.weight", "self_attn.sinks", Form::kVector},
    {"ffn_gate_inp", "mlp.router", Form::kRouter},
};

// ---- DBRX: its experts' matrices on top of each other, the last one as [in, out] ----------------

Result<Config> DbrxAdjust(const Config& config) {
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_ASSIGN(const Config ffn, config.Sub({"ffn_config"}));
    WEFT_ASSIGN(const Config act, ffn.Sub({"ffn_act_fn"}));
    WEFT_TRY(act.MustBe("name", "silu"));
    constexpr std::string_view kNorm = "moe_normalize_expert_weights";
    WEFT_ASSIGN(const double power, ffn.F64Or({kNorm}, 1));
    if (power != 1) return ffn.Corrupt(kNorm, "1, or null");
    const bool norms = ffn.Has(kNorm) || !ffn.Names(kNorm);
    Config usual = Renamed(config, {{"hidden_size", "d_model"},
                                    {"num_hidden_layers", "n_layers"},
                                    {"num_attention_heads", "n_heads"},
                                    {"max_position_embeddings", "max_seq_len"}});
    Json over = {
        {"norm_topk_prob", norms}, {"rms_norm_eps", nullptr}, {"intermediate_size", nullptr}};
    const bool named = config.Has("rope_theta") || config.Has("rope_parameters");
    for (const auto& [key, from, of] :
         {std::tuple{"num_key_value_heads", "kv_n_heads", &attention},
          std::tuple{"clip_qkv", "clip_qkv", &attention},
          std::tuple{"moe_intermediate_size", "ffn_hidden_size", &ffn},
          std::tuple{"num_experts", "moe_num_experts", &ffn},
          std::tuple{"num_experts_per_tok", "moe_top_k", &ffn},
          std::tuple{"rope_theta", "rope_theta", &attention}}) {
        if (of->Has(from) && !(named && key == std::string_view("rope_theta"))) {
            over[key] = of->json()[from];
        }
    }
    return usual.With(over);
}

Status DbrxMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteClamp(config, meta));
    return WriteExperts(config, meta, "moe_intermediate_size", "softmax");
}

Status DbrxLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t experts, assembly.ExpertCount());
    WEFT_ASSIGN(const int64_t ffn,
                assembly.config().NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    for (const auto& [gguf, part] :
         {std::pair{"ffn_gate_exps.weight", "w1"}, std::pair{"ffn_up_exps.weight", "v1"},
          std::pair{"ffn_down_exps.weight", "w2"}}) {
        const std::string name = prefix + "ffn.experts.mlp." + part;
        WEFT_ASSIGN(MatrixPtr all, assembly.Checked(assembly.Tensor(name), name, experts * ffn));
        if (part == std::string_view("w2")) all = Transposed(std::move(all), ffn);
        const std::vector<int64_t> dims = {all->cols(), all->rows() / experts, experts};
        assembly.Add(Assembly::Block(layer, gguf), std::move(all), dims);
    }
    return {};
}

constexpr Rule kDbrxRules[] = {
    {"attn_norm", "norm_attn_norm.norm_1", Form::kNorm},
    {"attn_qkv", "norm_attn_norm.attn.Wqkv", Form::kLinear},
    {"attn_output", "norm_attn_norm.attn.out_proj", Form::kLinear},
    {"attn_output_norm", "norm_attn_norm.norm_2", Form::kNorm},
    {"ffn_gate_inp", "ffn.router.layer", Form::kRouter},
};

// ---- gpt-oss: gate and up in alternate rows; MXFP4, or transposed floats ----------------------

// A projection as [experts * rows, cols]; if quantized, from NAME_blocks and NAME_scales.
Result<MatrixPtr> GptOssMatrix(Assembly& assembly, const std::string& name, int64_t experts) {
    WEFT_ASSIGN(MatrixPtr matrix, assembly.Mxfp4(name));
    if (matrix == nullptr) {
        WEFT_ASSIGN(matrix, assembly.Tensor(name));
        if (matrix != nullptr && matrix->rows() % experts == 0) {
            const int64_t group = matrix->rows() / experts;
            matrix = Transposed(std::move(matrix), group);
        }
    }
    if (matrix != nullptr && matrix->rows() % experts == 0) return matrix;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: '{}' is missing, or its rows are not a multiple of {} experts",
                     assembly.folder(), name, experts);
}

// A bias as [experts, size].
Status AddBias(Assembly& assembly, const std::string& gguf, MatrixPtr column, int64_t experts) {
    if (column == nullptr || column->rows() % experts != 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the bias for '{}' is missing, or its size is not a multiple of {} "
                         "experts",
                         assembly.folder(), gguf, experts);
    }
    const int64_t size = column->rows() / experts;
    assembly.Add(gguf, Reshaped(std::move(column), size), {size, experts});
    return {};
}

Status GptOssExperts(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t experts, assembly.ExpertCount());
    const std::string both = prefix + "mlp.experts.gate_up_proj";
    const std::string down = prefix + "mlp.experts.down_proj";
    for (const int64_t odd : {0, 1}) {
        const std::string gguf = Assembly::Block(layer, odd == 0 ? "ffn_gate_exps" : "ffn_up_exps");
        WEFT_ASSIGN(MatrixPtr matrix, GptOssMatrix(assembly, both, experts));
        WEFT_ASSIGN(MatrixPtr bias, assembly.Column(both + "_bias"));
        const int64_t rows = matrix->rows() / 2;
        if (rows < 1 || rows % experts != 0 || bias == nullptr || bias->rows() != 2 * rows) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' and its bias do not have the size of gate and up of {} "
                             "experts",
                             assembly.folder(), both, experts);
        }
        const std::vector<int64_t> dims = {matrix->cols(), rows / experts, experts};
        assembly.Add(gguf + ".weight", SomeRows(std::move(matrix), odd, 1, 2, rows), dims);
        WEFT_TRY(
            AddBias(assembly, gguf + ".bias", SomeRows(std::move(bias), odd, 1, 2, rows), experts));
    }
    WEFT_ASSIGN(MatrixPtr matrix, GptOssMatrix(assembly, down, experts));
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(down + "_bias"));
    const std::vector<int64_t> dims = {matrix->cols(), matrix->rows() / experts, experts};
    const std::string gguf = Assembly::Block(layer, "ffn_down_exps");
    assembly.Add(gguf + ".weight", std::move(matrix), dims);
    return AddBias(assembly, gguf + ".bias", std::move(bias), experts);
}

constexpr Family kExpertFamilies[] = {
    {.model_type = "mixtral",
     .architecture = "llama",
     .rules = {kPreNormRules, kAttentionRules, kBlockSparseMoeRules, kMoeRules},
     .meta = MixtralMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "num_key_value_heads": 8, "norm_topk_prob": true,
                     "num_local_experts": 8, "num_experts_per_tok": 2,
                     "intermediate_size": 14336})"},
    {.model_type = "dbrx",
     .architecture = "dbrx",
     .rules = {kDbrxRules},
     .meta = DbrxMeta,
     .layer = DbrxLayer,
     .adjust = DbrxAdjust,
     .defaults = R"({"d_model": 2048, "n_layers": 24, "n_heads": 16, "max_seq_len": 2048,
                     "num_key_value_heads": 1, "layer_norm_eps": 1e-5})",
     .embedding = "wte",
     .final_norm = "norm_f",
     .layers = "blocks",
     .path = "transformer",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "ffn_gate_exps.weight ffn_up_exps.weight ffn_down_exps.weight"},
    {.model_type = "phimoe",
     .architecture = "phimoe",
     .rules = {kPreNormRules, kAttentionRules, kBlockSparseMoeRules},
     .meta = PhimoeMeta,
     .adjust = PhimoeAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "num_key_value_heads": 8, "num_local_experts": 16,
                     "num_experts_per_tok": 2, "sliding_window": null})",
     .rope = {.only_longrope = true},
     .more_tensors =
         "attn_norm.bias ffn_norm.bias output_norm.bias attn_output.bias?attention_bias "
         "output.bias?lm_head_bias"},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .rules = {kGptOssRules, kAttentionRules},
     .meta = GptOssMeta,
     .layer = GptOssExperts,
     .defaults = R"({"max_position_embeddings": 131072, "rope_theta": 150000.0,
                     "rms_norm_eps": 1e-5, "head_dim": 64, "sliding_window": 128,
                     "norm_topk_prob": true, "num_local_experts": 128, "intermediate_size": 2880,
                     "rope_parameters": {
                         "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": false, "original_max_position_embeddings": 4096}})",
     .more_tensors = "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_gate_inp.bias "
                     "ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias"},
    {.model_type = "glm4_moe",
     .also = "glm4v_moe glm4v_moe_text",
     .architecture = "glm4moe",
     .rules = {kGlmRules, kAttentionRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "partial_rotary_factor": 0.5, "norm_topk_prob": true,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "first_k_dense_replace": 1, "moe_intermediate_size": 1408})",
     .rope = {.partial = true, .mrope = true},
     .draft_head = &kDeepseekDraftHead},
    {.model_type = "solar_open",
     .architecture = "glm4moe",
     .rules = {kGlmRules, kAttentionRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .adjust = SolarAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "head_dim": 128, "num_key_value_heads": 8,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 1280, "norm_topk_prob": true, "n_group": 1,
                     "topk_group": 1, "routed_scaling_factor": 1.0})"},
    {.model_type = "hy_v3",
     .architecture = "hy_v3",
     .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kHy3Rules, kMoeRules},
     .gating = "sigmoid",
     .adjust = Hy3Adjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 11158840.0, "head_dim": 128, "num_key_value_heads": 8,
                     "num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1,
                     "moe_intermediate_size": 1536, "router_scaling_factor": 2.826,
                     "first_k_dense_replace": 1})",
     .draft_head = &kFinalNormDraftHead},
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

}  // namespace

extern const std::span<const Family> kMoeModels = kExpertFamilies;

}  // namespace weft::model_files::hf
