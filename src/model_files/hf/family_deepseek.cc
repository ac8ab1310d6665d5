// DeepSeek V2, V3 and R1, Kimi K2 (and the text part of K2.5 to K2.7), GLM 4.7 Flash, Youtu,
// Mistral Small 4 and Large 4, DeepSeek V3.2, GLM 5: latent attention. GGUF splits the projection
// from the latent to keys and values (kv_b) into two tensors: K's part, transposed per head so that
// it can be absorbed into the query, and V's part. Rotated dims are in neighboring pairs in GGUF,
// and in folders unless rope_interleave is false.
#include <algorithm>
#include <cmath>

#include "model_files/hf/latent.h"

namespace weft::model_files::hf {
namespace {

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

Status Mistral4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "softmax"));
    return WriteTemperature(config, meta);
}

// partial_rotary_factor is relative to all columns of a head, and repeats qk_rope_head_dim.
Result<Config> Mistral4Adjust(const Config& config) {
    constexpr std::string_view kShare = "partial_rotary_factor";
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 2, kMostColumns));
    WEFT_ASSIGN(const int64_t plain, config.NeedInt({"qk_nope_head_dim"}, 1, kMostColumns));
    Json over = Json::object();
    for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
        WEFT_ASSIGN(const Config params, config.Sub({key}));
        if (!params.Has(kShare)) continue;
        WEFT_ASSIGN(const double share, params.NeedF64({kShare}));
        if (!(std::abs(share * static_cast<double>(rotary + plain) - static_cast<double>(rotary)) <
              0.5)) {
            return params.Corrupt(kShare, fmt::format("{} of {}", rotary, rotary + plain));
        }
        over[key] = params.json();
        over[key].erase(std::string(kShare));
    }
    return config.With(over);
}

Status Deepseek2Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::string method, config.StringOr({"topk_method"}, ""));
    if (method != "greedy" && method != "group_limited_greedy") {
        return config.Corrupt("topk_method", "'greedy' or 'group_limited_greedy'");
    }
    return LatentExpertsMeta(config, meta, "softmax");
}

Status Deepseek3Meta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const std::string method, config.StringOr({"topk_method"}, ""));
    WEFT_ASSIGN(const int64_t groups, config.IntOr({"n_group"}, 0, kMostColumns, 1));
    if (method == "greedy" && groups > 1) {
        return config.Corrupt("topk_method", "'noaux_tc', because n_group is not 1");
    }
    return LatentExpertsMeta(config, meta, "sigmoid");
}

Status Deepseek32Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "sigmoid"));
    WEFT_TRY(IndexerMeta(config, meta));  // in all layers
    return CheckIndexerRope(config, false);
}

Status GlmDsaMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "sigmoid"));
    WEFT_TRY(IndexerLayersMeta(config, meta));
    return CheckIndexerRope(config, true);
}

// Mistral Large 4, by layer: whether its heads have rotated columns.
Result<std::vector<bool>> RotatedLayers(const Config& config) {
    constexpr std::string_view kKey = "no_rope_layers";
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const std::vector<int64_t> given, config.Ints({kKey}));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"no_rope_layer_interval"}, 1, 4096, 4));
    if (!given.empty() && static_cast<int64_t>(given.size()) < layers) {
        return config.Corrupt(kKey, fmt::format("0 or 1 for each of {} layers", layers));
    }
    std::vector<bool> rotated;
    for (int64_t layer = 0; layer < layers; ++layer) {
        rotated.push_back(given.empty() ? (layer + 1) % step != 0
                                        : given[static_cast<size_t>(layer)] != 0);
    }
    return rotated;
}

// By layer, the layer whose latents it reads: itself, or (as in transformers) the last layer of its
// kind that writes shared latents.
Result<std::vector<int64_t>> LatentSources(const Config& config, const std::vector<bool>& rotated) {
    constexpr std::string_view kKey = "kv_source_layers";
    const auto layers = static_cast<int64_t>(rotated.size());
    WEFT_ASSIGN(std::vector<int64_t> sources, config.Ints({kKey}));
    if (sources.empty()) {
        for (int64_t layer = 0; layer < layers; ++layer) sources.push_back(layer);
    }
    std::optional<int64_t> last[2];  // by kind
    bool good = static_cast<int64_t>(sources.size()) == layers;
    for (int64_t layer = 0; good && layer < layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        std::optional<int64_t>& known = last[rotated[at] ? 1 : 0];
        if (sources[at] == layer) {
            const auto behind = sources.begin() + layer + 1;
            if (std::find(behind, sources.end(), layer) != sources.end()) known = layer;
        } else {
            good = known == sources[at];
        }
    }
    if (good) return sources;
    return config.Corrupt(kKey,
                          "for each layer its own number, or that of the last earlier layer of its "
                          "kind (with or without RoPE) whose latents other layers read");
}

Status MistralLarge4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "softmax"));
    WEFT_TRY(IndexerLayersMeta(config, meta));
    WEFT_ASSIGN(const std::vector<bool> rotated, RotatedLayers(config));
    WEFT_ASSIGN(const std::vector<int64_t> sources, LatentSources(config, rotated));
    meta.Bools("rope.layers", rotated);
    meta.Ints("attention.kv_source_layers", sources);
    WEFT_ASSIGN(const double cap, config.F64Or({"final_logit_softcapping"}, 0.0));
    if (cap != 0) meta.F32("final_logit_softcapping", cap);
    return {};
}

// Layers without RoPE have no rotated columns. Frequencies are multiplied by exp(alpha), which a
// GGUF file stores as divisors.
Status MistralLarge4Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const std::vector<bool> rotated, RotatedLayers(config));
    WEFT_ASSIGN(int64_t plain, config.NeedInt({"qk_nope_head_dim"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 2, kMostColumns));
    if (!rotated[static_cast<size_t>(layer)]) plain += rotary;
    WEFT_TRY(SplitHeads(assembly, layer, prefix + "attention.wkv_b", plain));
    if (layer != 0) return {};
    const std::string name = "lerope.alpha";
    WEFT_ASSIGN(MatrixPtr alpha, assembly.Column(name));
    if (alpha == nullptr || alpha->rows() != rotary / 2) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor '{}' is missing, or does not have {} elements",
                         assembly.folder(), name, rotary / 2);
    }
    assembly.AddVector("rope_freqs.weight",
                       Changed(std::move(alpha), [](float value) { return std::exp(-value); }));
    return {};
}

// ---- Hy4: GLM 5's attention with sinks and gates, between several streams -----------------------

// By default, the first layer and every fourth one from the second on have an indexer.
Result<Config> Hy4Adjust(const Config& config) {
    WEFT_TRY(config.MustBe("attention_bias", false));
    Json over = Json::object();
    if (!config.Has("indexer_types")) {
        WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
        Json types = Json::array();
        for (int64_t layer = 0; layer < layers; ++layer) {
            types.push_back(layer == 0 || (layer - 1) % 4 == 0 ? "full" : "shared");
        }
        over["indexer_types"] = std::move(types);
    }
    if (!config.Has("mlp_layer_types")) over["first_k_dense_replace"] = 1;
    return IndexedAdjust(config.With(over));
}

Status Hy4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "sigmoid"));
    WEFT_TRY(IndexerLayersMeta(config, meta));
    WEFT_TRY(WriteNumbers(config, meta, {{"hyper_connection.count", "hc_mult"}}));
    WEFT_ASSIGN(const double eps, config.NeedF64({"hc_eps"}));
    WEFT_ASSIGN(const double magnitude, config.NeedF64({"hc_magnitude"}));
    WEFT_ASSIGN(const double limit, config.NeedF64({"swiglu_limit"}));
    meta.F32("hyper_connection.epsilon", eps);
    meta.F32("hyper_connection.magnitude", magnitude);
    if (limit > 0) meta.F32("swiglu_clamp_exp", limit);
    return {};
}

// The first of these tensors that the folder has; the first name if it has none.
std::string FirstOf(const Assembly& assembly, const std::vector<std::string>& names) {
    const auto found =
        std::ranges::find_if(names, [&](const std::string& name) { return assembly.Has(name); });
    return found == names.end() ? names.front() : *found;
}

// A matrix in F32 and two vectors that weigh streams. `names` make the name of each part.
template <typename Names>
Status AddStreamWeights(Assembly& assembly, const std::string& gguf, Names names) {
    for (const std::string part : {"fn", "base", "scale"}) {
        const std::string name = FirstOf(assembly, names(part));
        const std::string to = gguf + "_" + part + ".weight";
        if (part == "fn") {
            WEFT_ASSIGN(MatrixPtr matrix, assembly.Checked(assembly.Tensor(name), name, 0));
            assembly.Add(to, Converted(std::move(matrix), DType::kF32));
            continue;
        }
        WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(name), name, 0));
        assembly.AddVector(to, std::move(column));
    }
    return {};
}

// The rotated columns of queries and keys are in pairs in published folders and GGUF files, and in
// halves in the folders that transformers saves.
Status AddHy4Rotated(Assembly& assembly, int64_t layer, const std::string& attention, bool pairs) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t rotary, config.NeedInt({"qk_rope_head_dim"}, 2, kMostColumns));
    WEFT_ASSIGN(const int64_t plain, config.NeedInt({"qk_nope_head_dim"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t latent, config.NeedInt({"kv_lora_rank"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t index, config.NeedInt({"index_head_dim"}, rotary + 1, kMostColumns));
    struct Rotated {
        std::string_view gguf, module;
        int64_t head = 0;  // its last `rotary` rows are rotated
    };
    const Rotated all[] = {{"attn_q_b", "q_b_proj", plain + rotary},
                           {"attn_kv_a_mqa", "kv_a_proj_with_mqa", latent + rotary},
                           {"indexer.attn_q_b", "indexer.wq_b", index},
                           {"indexer.attn_k", "indexer.wk", index}};
    const auto placed = [&](MatrixPtr matrix, const std::string& name,
                            int64_t head) -> Result<MatrixPtr> {
        if (pairs) return matrix;
        if (matrix->rows() % head == 0 && rotary % 2 == 0) {
            return HalvesToPairs(std::move(matrix), head, head - rotary);
        }
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} rows; expected whole heads of {}",
                         assembly.folder(), name, matrix->rows(), head);
    };
    for (const Rotated& one : all) {
        const std::string module = attention + std::string(one.module);
        if (!assembly.HasLinear(module) && one.head == index) continue;
        WEFT_ASSIGN(MatrixPtr matrix, assembly.Checked(assembly.Linear(module), module, 0));
        WEFT_ASSIGN(matrix, placed(std::move(matrix), module, one.head));
        assembly.Add(Assembly::Block(layer, std::string(one.gguf) + ".weight"), std::move(matrix));
    }
    for (const std::string part : {".weight", ".bias"}) {
        const std::string name = attention + "indexer.k_norm" + part;
        WEFT_ASSIGN(MatrixPtr column, assembly.Column(name));
        if (column == nullptr) continue;
        WEFT_ASSIGN(column, placed(std::move(column), name, index));
        assembly.AddVector(Assembly::Block(layer, "indexer.k_norm" + part), std::move(column));
    }
    return {};
}

// Names in published folders, and in those that transformers saves.
Status Hy4Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const std::string attention = prefix + "self_attn.";
    const bool published = assembly.Has(prefix + "hc_attn_layer.hc_pre.hc_fn");
    WEFT_TRY(AddHy4Rotated(assembly, layer, attention, published));
    WEFT_TRY(SplitKvB(assembly, layer, attention + "kv_b_proj"));
    std::string gate = "linear_gate";
    if (!assembly.HasLinear(attention + gate)) gate = "gate_proj";
    WEFT_ASSIGN(MatrixPtr matrix,
                assembly.Checked(assembly.Linear(attention + gate), attention + gate, 0));
    assembly.Add(Assembly::Block(layer, "attn_gate.weight"), std::move(matrix));
    const std::string sinks =
        FirstOf(assembly, {attention + "learnable_sink_param", attention + "sinks"});
    WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(sinks), sinks, 0));
    assembly.AddVector(Assembly::Block(layer, "attn_sinks.weight"), std::move(column));
    for (const auto& [gguf, old, now] : {std::tuple("hc_attn", "hc_attn_layer.", "attn_hc."),
                                         std::tuple("hc_ffn", "hc_mlp_layer.", "ffn_hc.")}) {
        WEFT_TRY(AddStreamWeights(assembly, Assembly::Block(layer, gguf),
                                  [&prefix, old = old, now = now](const std::string& part) {
                                      return std::vector<std::string>{
                                          prefix + old + "hc_pre.hc_" + part,
                                          prefix + "hc_pre." + old + "hc_" + part,
                                          prefix + now + part};
                                  }));
    }
    if (layer > 0) return {};
    const std::string root = prefix.substr(0, prefix.rfind("layers."));
    return AddStreamWeights(assembly, "output_hc", [&](const std::string& part) {
        return std::vector<std::string>{root + "hc_head.hc_head_" + part,
                                        root + "hc_pre.hc_head.hc_head_" + part,
                                        root + "hc_head.hc_" + part};
    });
}

constexpr Rule kHy4Rules[] = {
    {"attn_q_a", "self_attn.q_a_proj", Form::kLinear},
    {"attn_q_a_norm", "self_attn.q_a_layernorm", Form::kNorm},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", Form::kNorm},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
    {"indexer.proj", "self_attn.indexer.weights_proj", Form::kLinear, false},
    // Names of gates in folders that transformers saves.
    {"ffn_gate", "mlp.linear_gate", Form::kLinear, false},
    {"ffn_gate_shexp", "mlp.shared_experts.linear_gate", Form::kLinear, false},
};

// ---- LongCat-Flash: two layers for each layer of the folder -------------------------------------

Result<Config> LongcatAdjust(const Config& config) {
    for (const char* key : {"mla_scale_q_lora", "mla_scale_kv_lora"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_TRY(config.MustBe("router_bias", false));
    WEFT_TRY(config.MustBe("zero_expert_type", "identity"));
    const Config renamed = Renamed(config, {{"num_experts_per_tok", "moe_topk"},
                                            {"intermediate_size", "ffn_hidden_size"},
                                            {"moe_intermediate_size", "expert_ffn_hidden_size"}});
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_layers"}, 1, 2048));
    Json dense = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) dense.push_back(2 * layer + 1);
    return renamed.With(
        Json{{"num_hidden_layers", 2 * layers}, {"mlp_only_layers", std::move(dense)}});
}

Status LongcatMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "softmax"));
    WEFT_ASSIGN(const int64_t identities, config.IntOr({"zero_expert_num"}, 0, 1 << 16, 0));
    meta.Int("expert_zero_count", identities);
    return {};
}

// A norm's weights, times the root of hidden_size over their number.
Status AddScaledNorm(Assembly& assembly, const std::string& name, const std::string& gguf) {
    WEFT_ASSIGN(const int64_t hidden, assembly.config().NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
    const double factor =
        std::sqrt(static_cast<double>(hidden) / static_cast<double>(norm->rows()));
    assembly.AddVector(gguf, Changed(std::move(norm), [factor](float value) {
                           return static_cast<float>(value * factor);
                       }));
    return {};
}

Status AddLongcatExperts(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t count, assembly.ExpertCount());
    WEFT_ASSIGN(const int64_t more, assembly.config().IntOr({"zero_expert_num"}, 0, 1 << 16, 0));
    for (const std::string part : {"gate", "up", "down"}) {
        const std::string module = prefix + "mlp.experts.*." + part + "_proj";
        WEFT_ASSIGN(MatrixPtr stack, assembly.Checked(assembly.Experts(module, count), module, 0));
        const std::vector<int64_t> dims = {stack->cols(), stack->rows() / count, count};
        assembly.Add(Assembly::Block(layer, "ffn_" + part + "_exps.weight"), std::move(stack),
                     dims);
        // transformers also saves matrices of the other experts, which it does not read.
        for (int64_t expert = count; expert < count + more; ++expert) {
            WEFT_TRY(
                assembly.Linear(fmt::format("{}mlp.experts.{}.{}_proj", prefix, expert, part)));
        }
    }
    const std::string router = prefix + "mlp.router.classifier";
    WEFT_ASSIGN(MatrixPtr logits,
                assembly.Checked(assembly.Linear(router, 1, true), router, count + more));
    assembly.Add(Assembly::Block(layer, "ffn_gate_inp.weight"),
                 Converted(std::move(logits), DType::kF32));
    const std::string bias = prefix + "mlp.router.e_score_correction_bias";
    WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(bias), bias, count + more));
    assembly.AddVector(Assembly::Block(layer, "exp_probs_b.bias"), std::move(column));
    return {};
}

Status LongcatLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const std::string attention = fmt::format("{}self_attn.{}.", prefix, layer % 2);
    WEFT_TRY(SplitKvB(assembly, layer, attention + "kv_b_proj"));
    for (const char* latent : {"q_a", "kv_a"}) {
        WEFT_TRY(AddScaledNorm(assembly, fmt::format("{}{}_layernorm.weight", attention, latent),
                               Assembly::Block(layer, fmt::format("attn_{}_norm.weight", latent))));
    }
    return layer % 2 == 0 ? AddLongcatExperts(assembly, layer, prefix) : Status();
}

constexpr Rule kLongcatRules[] = {
    {"attn_norm", "input_layernorm.#", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm.#", Form::kNorm},
    {"attn_q_a", "self_attn.#.q_a_proj", Form::kLinear},
    {"attn_q_b", "self_attn.#.q_b_proj", Form::kLinear},
    {"attn_kv_a_mqa", "self_attn.#.kv_a_proj_with_mqa", Form::kLinear},
    {"attn_output", "self_attn.#.o_proj", Form::kLinear},
    {"ffn_%", "mlps.#.%_proj", Form::kLinear},
};

constexpr Rule kAxK1Rules[] = {
    {"post_ffw_norm", "post_mlp_layernorm", Form::kNorm, false},
};

// Mistral Large 4's folders have Mistral's own names. A layer that reads another layer's latents
// has no tensors for them.
constexpr Rule kMistralLarge4Rules[] = {
    {"attn_norm", "attention_norm", Form::kNorm},
    {"attn_q", "attention.wq", Form::kLinear},
    {"attn_kv_a_mqa", "attention.wkv_a_with_mqa", Form::kLinear, false},
    {"attn_kv_a_norm", "attention.kv_a_norm", Form::kNorm, false},
    {"attn_output", "attention.wo", Form::kLinear},
    {"attn_temperature.weight", "attention.ssmax_scaling.s", Form::kVector},
    {"attn_temperature.bias", "attention.ssmax_scaling.b", Form::kVector},
    {"indexer.attn_q_b", "attention.indexer.wq_b", Form::kLinear, false},
    {"indexer.attn_k", "attention.indexer.wk", Form::kLinear, false},
    {"indexer.proj", "attention.indexer.weights_proj", Form::kLinear, false},
    {"indexer.q_norm.weight", "attention.indexer.q_input_norm.weight", Form::kVector, false},
    {"indexer.q_norm.bias", "attention.indexer.q_input_norm.bias", Form::kVector, false},
    {"indexer.k_norm.weight", "attention.indexer.k_norm.weight", Form::kVector, false},
    {"indexer.k_norm.bias", "attention.indexer.k_norm.bias", Form::kVector, false},
    {"indexer.temperature.weight", "attention.indexer.ssmax_scaling.s", Form::kVector, false},
    {"indexer.temperature.bias", "attention.indexer.ssmax_scaling.b", Form::kVector, false},
};
constexpr Rule kMistralLarge4MoeRules[] = {
    {"ffn_norm", "ffn_norm", Form::kNorm},
    {"ffn_%", "feed_forward.w%", Form::kLinear, false},
    {"ffn_gate_inp", "gate", Form::kRouter, false},
    {"ffn_%_exps", "experts.*.w%", Form::kExperts, false},
    {"ffn_%_shexp", "shared_experts.w%", Form::kLinear, false},
};

// Weights of experts are not normalized.
constexpr Family DeepseekV2() {
    Family family = LatentFamily(
        "deepseek_v2", Deepseek2Meta,
        R"({"max_position_embeddings": 2048, "n_routed_experts": 64, "n_shared_experts": 2,
                 "topk_method": "greedy"})");
    family.routing = "n_group topk_group routed_scaling_factor";
    family.rope.reads_interleave = false;
    return family;
}

constexpr Family Mistral4() {
    Family family = LatentFamily(
        "mistral4", Mistral4Meta,
        R"({"max_position_embeddings": 1048576, "kv_lora_rank": 256, "q_lora_rank": 1024,
                 "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128,
                 "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4,
                 "moe_intermediate_size": 2048, "first_k_dense_replace": 0, "n_group": 1,
                 "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": true,
                 "rope_parameters": {
                     "rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0,
                     "original_max_position_embeddings": 8192, "beta_fast": 32.0,
                     "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0,
                     "llama_4_scaling_beta": 0.1}})",
        Mistral4Adjust, "mistral4");
    family.rope.temperature = true;
    family.draft_head = nullptr;
    return family;
}

// Queries are projected directly; other differences are described at their functions.
constexpr Family MistralLarge4() {
    Family family = LatentFamily("mistral_large4", MistralLarge4Meta,
                                 R"({"max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
                                 "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                                 "qk_nope_head_dim": 64, "v_head_dim": 128,
                                 "n_routed_experts": 128, "n_shared_experts": 1,
                                 "num_experts_per_tok": 4, "moe_intermediate_size": 6144,
                                 "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                                 "routed_scaling_factor": 1.0, "norm_topk_prob": true,
                                 "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32,
                                 "final_logit_softcapping": 30.0,
                                 "rope_parameters": {
                                     "rope_type": "yarn", "rope_theta": 10000.0,
                                     "factor": 2048.0, "original_max_position_embeddings": 512,
                                     "beta_fast": 32.0, "beta_slow": 1.0,
                                     "attention_factor": 1.0}})",
                                 IndexedAdjust, "mistral-large4");
    family.also = "mistral_large4_text";
    family.routing = "n_group topk_group routed_scaling_factor";  // weights are not normalized
    family.rope.reads_interleave = false;
    family.rules = {kMistralLarge4Rules, kMistralLarge4MoeRules};
    family.layer = MistralLarge4Layer;
    family.caps = "final_logit_softcapping";
    family.embedding = "tok_embeddings";
    return family;
}

// Layers with experts have a norm behind them.
constexpr Family AxK1() {
    Family family =
        LatentFamily("axk1", Deepseek3Meta,
                     R"({"max_position_embeddings": 32768, "kv_lora_rank": 512, "q_lora_rank": 1536,
                     "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                     "n_routed_experts": 192, "n_shared_experts": 1, "num_experts_per_tok": 8,
                     "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "n_group": 8,
                     "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true})",
                     WithDenseLayers);
    family.rules[4] = kAxK1Rules;
    return family;
}

constexpr Family Hy4() {
    Family family = IndexedFamily(
        "hy_v4", "hy_v4", Hy4Meta,
        R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
                   "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
                   "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
                   "num_experts_per_tok": 8, "moe_intermediate_size": 768, "n_group": 1,
                   "topk_group": 1, "routed_scaling_factor": 2.827, "norm_topk_prob": true,
                   "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 16, "hc_mult": 4,
                   "hc_magnitude": 2.0, "hc_eps": 1e-6, "swiglu_limit": 10.0})");
    family.rules = {kPreNormRules, kHy4Rules, kMoeRules, kSharedExpertsRules};
    family.adjust = Hy4Adjust;
    family.layer = Hy4Layer;
    family.draft_head = nullptr;
    family.more_tensors =
        "attn_q_b.weight attn_kv_a_mqa.weight indexer.attn_q_b.weight indexer.attn_k.weight "
        "indexer.k_norm.weight indexer.k_norm.bias attn_k_b.weight attn_v_b.weight "
        "attn_gate.weight attn_gate.columns attn_sinks.weight";
    return family;
}

constexpr Family Longcat() {
    Family family = LatentFamily("longcat_flash", LongcatMeta,
                                 R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                                 "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
                                 "qk_nope_head_dim": 128, "v_head_dim": 128, "num_layers": 28,
                                 "n_routed_experts": 512, "zero_expert_num": 256,
                                 "num_experts_per_tok": 12, "intermediate_size": 12288,
                                 "moe_intermediate_size": 2048, "routed_scaling_factor": 6.0,
                                 "rope_theta": 10000000.0})",
                                 LongcatAdjust, "longcat-flash");
    family.rules = {kLongcatRules};
    family.routing = "routed_scaling_factor";
    family.rope.reads_interleave = false;
    family.layer = LongcatLayer;
    family.sublayers = 2;
    family.draft_head = nullptr;
    family.more_tensors = "attn_k_b.weight attn_v_b.weight exp_probs_b.bias";
    return family;
}

// Dense MLPs and the factors of MiniCPM.
constexpr Family MiniCpm3() {
    Family family = DenseLatentFamily("minicpm3",
                                      R"({"max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                              "kv_lora_rank": 256, "q_lora_rank": 768, "qk_rope_head_dim": 32,
                              "qk_nope_head_dim": 64, "v_head_dim": 64, "scale_emb": 12,
                              "scale_depth": 1.4, "dim_model_base": 256,
                              "tie_word_embeddings": true})");
    family.architecture = "minicpm3";
    family.meta = MiniCpm3Meta;
    family.rope.reads_interleave = false;
    family.draft_head = nullptr;
    return family;
}

constexpr std::string_view kDeepseek3Defaults =
    R"({"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
        "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true})";

constexpr Family kDeepseekFamilies[] = {
    DeepseekV2(),
    LatentFamily("deepseek_v3", Deepseek3Meta, kDeepseek3Defaults),
    LatentFamily("kimi_k2", Deepseek3Meta),
    LatentFamily("kimi_k25", Deepseek3Meta, kDeepseek3Defaults),
    LatentFamily("glm4_moe_lite", Deepseek3Meta,
                 R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
                 "q_lora_rank": 768, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
                 "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
                 "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
                 "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                 "routed_scaling_factor": 1.8, "norm_topk_prob": true})",
                 WithDenseLayers),
    Mistral4(),
    MistralLarge4(),
    IndexedFamily("deepseek_v32", "deepseek32", Deepseek32Meta,
                  R"({"max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536,
               "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
               "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
               "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
               "topk_group": 4, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
               "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64})"),
    IndexedFamily("glm_moe_dsa", "glm-dsa", GlmDsaMeta,
                  R"({"max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
               "q_lora_rank": 2048, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
               "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
               "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
               "first_k_dense_replace": 3, "n_group": 1, "topk_group": 1,
               "routed_scaling_factor": 2.5, "norm_topk_prob": true, "index_topk": 2048,
               "index_head_dim": 128, "index_n_heads": 32})"),
    AxK1(),
    LatentFamily("sarvam_mla", Deepseek3Meta,
                 R"({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                 "v_head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1,
                 "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                 "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                 "routed_scaling_factor": 2.5, "norm_topk_prob": true})"),
    Hy4(),
    Longcat(),
    MiniCpm3(),
    DenseLatentFamily(
        "youtu",
        R"({"max_position_embeddings": 131072, "kv_lora_rank": 512, "q_lora_rank": 1536,
              "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
              "tie_word_embeddings": true})"),
};

}  // namespace

extern const std::span<const Family> kDeepseekModels = kDeepseekFamilies;

}  // namespace weft::model_files::hf
