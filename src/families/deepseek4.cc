// DeepSeek-V4 (DeepSeek-AI 2026): several residual streams, of which attention and experts each
// read one mixture; attention to the last positions and to pooled windows of all earlier ones.
// Tensors have the names of DeepSeek's own folders. config.json may be in DeepSeek's form
// (compress_ratios, num_hash_layers, rope_scaling) or in that of transformers (layer_types,
// mlp_layer_types, rope_parameters with "main" and "compress").
#include "families/family.h"

namespace weft::families::deepseek4 {

Result<int64_t> Layers(const Config& config) {
    return config.NeedInt({"num_hidden_layers"}, 1, kMostLayers);
}

// Sets the positions per window of each layer from the layer types.
Status TakeLayerTypes(const Config& config, Json& over) {
    if (config.Has("compress_ratios")) return {};
    WEFT_ASSIGN(const int64_t layers, Layers(config));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const Config rates, config.Sub({"compress_rates"}));
    constexpr std::string_view kShort = "compressed_sparse_attention";
    constexpr std::string_view kLong = "heavily_compressed_attention";
    WEFT_ASSIGN(const int64_t short_rate, rates.IntOr({kShort}, 1, kMostColumns, 4));
    WEFT_ASSIGN(const int64_t long_rate, rates.IntOr({kLong}, 1, kMostColumns, 128));
    if (types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    if (short_rate != 4 || long_rate == 4) {
        return rates.Corrupt(kShort, "4, and another number for heavily_compressed_attention");
    }
    over["compress_ratios"] = Json::array();
    for (const std::string& type : types) {
        const bool known = type == kShort || type == kLong || type == "sliding_attention";
        if (!known) return config.Corrupt("layer_types", "types of DeepSeek V4's layers");
        over["compress_ratios"].push_back(type == kShort  ? short_rate
                                          : type == kLong ? long_rate
                                                          : 0);
    }
    return {};
}

// Sets the number of first layers that choose experts by token id.
Status TakeHashLayers(const Config& config, Json& over) {
    if (config.Has("num_hash_layers")) return {};
    WEFT_ASSIGN(const int64_t layers, Layers(config));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"mlp_layer_types"}));
    const auto hashed = std::ranges::count(types, "hash_moe");
    const bool first = std::all_of(types.begin(), types.begin() + hashed,
                                   [](const std::string& type) { return type == "hash_moe"; });
    const bool known = std::ranges::count(types, "moe") + hashed == static_cast<int64_t>(layers);
    if (types.empty()) {
        over["num_hash_layers"] = std::min<int64_t>(layers, 3);
    } else if (!known || !first) {
        return config.Corrupt("mlp_layer_types", "'hash_moe' for the first layers, then 'moe'");
    } else {
        over["num_hash_layers"] = hashed;
    }
    return {};
}

// Converts transformers' rope_parameters, for layers without and with windows, to DeepSeek's form.
Status TakeRope(const Config& config, Json& over) {
    WEFT_ASSIGN(const Config all, config.Sub({"rope_parameters"}));
    if (all.Has("main") && all.Has("compress")) {
        WEFT_ASSIGN(const Config main, all.Sub({"main"}));
        WEFT_ASSIGN(const Config pooled, all.Sub({"compress"}));
        WEFT_ASSIGN(const std::string type, main.StringOr({"rope_type", "type"}, "default"));
        if (type != "default") return main.Corrupt("rope_type", "'default'");
        WEFT_ASSIGN(over["rope_theta"], main.NeedF64({"rope_theta"}));
        WEFT_ASSIGN(over["compress_rope_theta"], pooled.NeedF64({"rope_theta"}));
        Json scaling = pooled.json();
        for (const char* key : {"rope_theta", "partial_rotary_factor"}) scaling.erase(key);
        WEFT_ASSIGN(const std::string kind, pooled.StringOr({"rope_type"}, "default"));
        if (kind == "default") scaling = nullptr;
        over["rope_scaling"] = std::move(scaling);
        over["rope_parameters"] = nullptr;
    }
    const std::string_view place = over.contains("rope_scaling") || config.Has("rope_scaling")
                                       ? "rope_scaling"
                                       : "rope_parameters";
    Json& scaling = over[place];
    if (scaling.is_null() && config.Has(place)) scaling = config.json()[place];
    if (!scaling.is_object()) return {};
    if (scaling.contains("attention_factor") && scaling["attention_factor"] != 1.0) {
        const std::string_view given = config.Has("rope_scaling") ? place : "rope_parameters";
        return config.Corrupt(given, "an attention_factor of 1, or none");
    }
    scaling["attention_factor"] = 1.0;  // YaRN's magnitude is not used
    return {};
}

Result<Config> Deepseek4Adjust(const Config& config) {
    constexpr std::string_view kScores = "scoring_func", kMethod = "topk_method";
    WEFT_TRY(config.MustBe(kScores, "sqrtsoftplus"));
    WEFT_TRY(config.MustBe(kMethod, "noaux_tc"));
    for (const char* key : {"attention_bias", "mlp_bias"}) {
        WEFT_TRY(config.MustBe(key, false));
    }
    WEFT_ASSIGN(const int64_t dim, config.NeedInt({"head_dim"}, 2, 1024));
    WEFT_ASSIGN(const double share, config.F64Or({"partial_rotary_factor"}, 0.125));
    const auto usual = static_cast<int64_t>(static_cast<double>(dim) * share);
    WEFT_ASSIGN(const int64_t rotary, config.IntOr({"qk_rope_head_dim"}, 2, dim, usual));
    Json over = {{"partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(dim)},
                 {"intermediate_size", nullptr}};
    WEFT_TRY(TakeLayerTypes(config, over));
    WEFT_TRY(TakeHashLayers(config, over));
    WEFT_TRY(TakeRope(config, over));
    over["layer_types"] = over["mlp_layer_types"] = nullptr;
    return config.With(over);
}

Status WriteUnitLimit(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const double limit, config.F64Or({"swiglu_limit"}, 0.0));
    if (!(limit >= 0 && limit < 1e6)) return config.Corrupt("swiglu_limit", "0 to 1000000");
    if (limit == 0) return {};
    WEFT_ASSIGN(const int64_t layers, Layers(config));
    const std::vector<float> limits(static_cast<size_t>(layers), static_cast<float>(limit));
    meta.F32s("swiglu_clamp_exp", limits);
    return {};
}

Status Deepseek4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "sqrtsoftplus"));
    WEFT_TRY(WriteNumbers(config, meta,
                          {{"attention.q_lora_rank", "q_lora_rank"},
                           {"attention.output_lora_rank", "o_lora_rank"},
                           {"attention.output_group_count", "o_groups"},
                           {"attention.sliding_window", "sliding_window"},
                           {"attention.indexer.head_count", "index_n_heads"},
                           {"attention.indexer.key_length", "index_head_dim"},
                           {"attention.indexer.top_k", "index_topk"},
                           {"hyper_connection.count", "hc_mult"},
                           {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"}}));
    WEFT_ASSIGN(const double eps, config.NeedF64({"hc_eps"}));
    meta.F32("hyper_connection.epsilon", eps);
    WEFT_ASSIGN(const double base, config.NeedF64({"compress_rope_theta"}));
    meta.F32("attention.compress_rope_freq_base", base);
    WEFT_ASSIGN(const int64_t layers, Layers(config));
    WEFT_ASSIGN(const std::vector<int64_t> ratios, config.Ints({"compress_ratios"}));
    const bool good = std::ranges::all_of(
        ratios, [](int64_t ratio) { return ratio >= 0 && ratio <= kMostColumns; });
    if (static_cast<int64_t>(ratios.size()) < layers || !good) {
        return config.Corrupt("compress_ratios",
                              fmt::format("a number for each of {} layers", layers));
    }
    meta.Ints("attention.compress_ratios", ratios);
    WEFT_ASSIGN(const int64_t hashed, config.NeedInt({"num_hash_layers"}, 0, kMostLayers));
    meta.Int("hash_layer_count", std::min(hashed, layers));
    return WriteUnitLimit(config, meta);
}

// Adds the router and either a table of experts by token id or a bias for the choice.
Status AddRouter(Assembly& assembly, int64_t layer, const std::string& module) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(MatrixPtr router, assembly.Linear(module));
    if (router == nullptr) return assembly.Missing(module + ".weight");
    assembly.Add(Assembly::Block(layer, "ffn_gate_inp.weight"),
                 Converted(std::move(router), DType::kF32));
    WEFT_ASSIGN(const int64_t hashed, config.NeedInt({"num_hash_layers"}, 0, kMostLayers));
    if (layer >= hashed) {
        WEFT_ASSIGN(MatrixPtr bias, assembly.Column(module + ".bias"));
        if (bias == nullptr) return assembly.Missing(module + ".bias");
        assembly.AddVector(Assembly::Block(layer, "exp_probs_b.bias"), std::move(bias));
        return {};
    }
    WEFT_ASSIGN(const int64_t experts, assembly.ExpertCount());
    WEFT_ASSIGN(MatrixPtr table, assembly.Numbers(module + ".tid2eid", experts));
    if (table == nullptr) return assembly.Missing(module + ".tid2eid");
    assembly.Add(Assembly::Block(layer, "ffn_gate_tid2eid.weight"), std::move(table));
    return {};
}

// Adds matrices without ".weight" in their names, which stay F32.
Status AddPlain(Assembly& assembly, const std::string& name, const std::string& gguf, bool needed) {
    WEFT_ASSIGN(MatrixPtr matrix, assembly.Tensor(name));
    if (matrix == nullptr) return needed ? Status(assembly.Missing(name)) : Status();
    assembly.Add(gguf + ".weight", Converted(std::move(matrix), DType::kF32));
    return {};
}

Status AddStreamEnd(Assembly& assembly, const std::string& root) {
    const std::string own = root + "hc_head.hc_";  // saved by transformers
    const std::string module = assembly.Has(own + "fn") ? own : root + "hc_head_";
    WEFT_TRY(AddPlain(assembly, module + "fn", "output_hc_fn", true));
    for (const char* part : {"base", "scale"}) {
        const std::string name = module + part;
        WEFT_ASSIGN(MatrixPtr column, assembly.Column(name));
        if (column == nullptr) return assembly.Missing(name);
        assembly.AddVector(fmt::format("output_hc_{}.weight", part), std::move(column));
    }
    return {};
}

Status Deepseek4Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const auto block = [&](const char* name) { return Assembly::Block(layer, name); };
    const std::string root = prefix.substr(0, prefix.find("layers."));
    if (layer == 0) WEFT_TRY(AddStreamEnd(assembly, root));
    WEFT_TRY(AddPlain(assembly, prefix + "hc_attn_fn", block("hc_attn_fn"), true));
    WEFT_TRY(AddPlain(assembly, prefix + "hc_ffn_fn", block("hc_ffn_fn"), true));
    WEFT_TRY(
        AddPlain(assembly, prefix + "attn.compressor.ape", block("attn_compressor_ape"), false));
    WEFT_TRY(AddPlain(assembly, prefix + "attn.indexer.compressor.ape",
                      block("indexer_compressor_ape"), false));
    return AddRouter(assembly, layer, prefix + "ffn.gate");
}

constexpr Rule kAttentionPart[] = {
    {"attn_norm", "attn_norm", Form::kNorm},
    {"attn_q_a", "attn.wq_a", Form::kLinear},
    {"attn_q_a_norm", "attn.q_norm", Form::kNorm},
    {"attn_q_b", "attn.wq_b", Form::kLinear},
    {"attn_kv", "attn.wkv", Form::kLinear},
    {"attn_kv_a_norm", "attn.kv_norm", Form::kNorm, false},
    {"attn_kv_a_norm", "attn.norm", Form::kNorm, false},  // saved by transformers
    {"attn_sinks.weight", "attn.attn_sink", Form::kVector},
    {"attn_output_a", "attn.wo_a", Form::kLinear},
    {"attn_output_b", "attn.wo_b", Form::kLinear},
};
constexpr Rule kStreams[] = {
    {"hc_attn_base.weight", "hc_attn_base", Form::kVector},
    {"hc_attn_scale.weight", "hc_attn_scale", Form::kVector},
    {"hc_ffn_base.weight", "hc_ffn_base", Form::kVector},
    {"hc_ffn_scale.weight", "hc_ffn_scale", Form::kVector},
};
constexpr Rule kPooling[] = {
    {"attn_compressor_kv", "attn.compressor.wkv", Form::kLinear, false},
    {"attn_compressor_gate", "attn.compressor.wgate", Form::kLinear, false},
    {"attn_compressor_norm", "attn.compressor.norm", Form::kNorm, false},
    {"indexer.attn_q_b", "attn.indexer.wq_b", Form::kLinear, false},
    {"indexer.proj", "attn.indexer.weights_proj", Form::kLinear, false},
    {"indexer_compressor_kv", "attn.indexer.compressor.wkv", Form::kLinear, false},
    {"indexer_compressor_gate", "attn.indexer.compressor.wgate", Form::kLinear, false},
    {"indexer_compressor_norm", "attn.indexer.compressor.norm", Form::kNorm, false},
};
constexpr Rule kExpertsPart[] = {
    {"ffn_norm", "ffn_norm", Form::kNorm},
    {"ffn_%_exps", "ffn.experts.*.w%", Form::kExperts},
    {"ffn_%_shexp", "ffn.shared_experts.w%", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "deepseek_v4",
     .architecture = "deepseek4",
     .rules = {kAttentionPart, kStreams, kPooling, kExpertsPart},
     .meta = Deepseek4Meta,
     .routing = "scoring_func routed_scaling_factor",
     .layer = Deepseek4Layer,
     .adjust = Deepseek4Adjust,
     .defaults = R"({"max_position_embeddings": 1048576, "head_dim": 512, "q_lora_rank": 1024,
                     "num_key_value_heads": 1, "o_groups": 8, "o_lora_rank": 1024,
                     "sliding_window": 128, "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
                     "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "hc_mult": 4,
                     "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "swiglu_limit": 10.0,
                     "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
                     "moe_intermediate_size": 2048, "norm_topk_prob": true,
                     "routed_scaling_factor": 1.5})",
     .rope = {.partial = true},
     .embedding = "embed",
     .saved_embedding = "embed_tokens",
     .more_tensors = "attn_kv_a_norm.weight"},
};

ValueId BuildDeepSeek4(Builder& b, ValueId x) {
    return StreamLayers(b, x, &Builder::WindowAttention);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"deepseek4", "DeepSeek V4 (Flash, Pro)",
                "hyper-connections, windows, pooled keys, an indexer, sinks, experts by token",
                "deepseekV4"},
     .build = BuildDeepSeek4,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .plain_windows = true,
                .indexer = IndexerKind::kAlways,
                .pools_windows = true,
                .streams = Streams::kMixed,
                .drafts_may_lack = true,
                .gate_score = GateScore::kSqrtSoftplus}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::deepseek4
