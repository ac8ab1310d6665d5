// Gemma 4 (Google 2026), text: Gemma 3's block, except that layers without a window have larger
// heads, fewer KV heads, and keys that also serve as values; value heads are normed as well, scores
// are not scaled, and each layer ends with a scalar factor. Norms have no added 1. RoPE of layers
// without a window rotates the first quarter of each head's pairs. E2B and E4B add a per-layer
// embedding, and their last layers read the KV cache of the last layer of their kind that has one.
// Gemma 3n (Google 2025) has these as well; its residual stream is AltUp's, and LAuReL is added to
// attention.
#include <limits>

#include "families/family.h"
#include "program/streams.h"

namespace weft::families::gemma4 {

constexpr std::string_view kGelu4 = "gelu_pytorch_tanh";
constexpr int64_t kGemmaHeadDim = 1024;

Error NotSupported(const Config& config, std::string_view key, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported, "{}: {}: Gemma 4 {} is not supported", config.where(),
                     key, what);
}

Error Missing(const Assembly& assembly, const std::string& name) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tensor '{}' is missing; a model with per-layer embeddings needs it",
                     assembly.folder(), name);
}

// Refuses features that no released model has.
Status RefuseOthers(const Config& config) {
    WEFT_ASSIGN(const bool bias, config.BoolOr({"attention_bias"}, false));
    if (bias) return NotSupported(config, "attention_bias", "with biases");
    WEFT_ASSIGN(const std::string both_ways, config.StringOr({"use_bidirectional_attention"}, ""));
    if (both_ways == "all") {
        return NotSupported(config, "use_bidirectional_attention", "with bidirectional attention");
    }
    return {};
}

// The type of each layer; the last one always has full attention.
Result<std::vector<std::string>> LayerTypes(const Config& config, int64_t layers) {
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"layer_types"}));
    if (!types.empty() && types.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    for (int64_t layer = static_cast<int64_t>(types.size()); layer < layers; ++layer) {
        types.push_back((layer + 1) % 6 != 0 ? "sliding_attention" : "full_attention");
    }
    types.back() = "full_attention";
    return types;
}

struct Heads {
    int64_t head_dim = 0, kv_heads = 0;
    bool operator==(const Heads&) const = default;
};

// The object of one layer in `layers`, an object by layer number; empty if absent. transformers
// pads the numbers with zeros to one width: "03" of 48 layers.
Result<Config> OfLayer(const Config& layers, int64_t layer) {
    const std::string number = std::to_string(layer);
    std::string found;
    for (const auto& [key, value] : layers.json().items()) {
        if (!key.ends_with(number) || key.find_first_not_of('0') < key.size() - number.size() ||
            key.find_first_not_of("0123456789") != key.npos) {
            continue;
        }
        if (!found.empty()) return layers.Corrupt(key, "one key per layer, not also " + found);
        found = key;
    }
    return layers.Sub({found.empty() ? number : found});
}

// Heads of one layer: config.json overrides them by layer number or, for all layers without a
// window, by keys that begin with "global".
Result<Heads> HeadsOf(const Config& config, int64_t layer, bool slides) {
    Heads heads;
    WEFT_ASSIGN(heads.head_dim, config.NeedInt({"head_dim"}, 1, kGemmaHeadDim));
    WEFT_ASSIGN(heads.kv_heads, config.NeedInt({"num_key_value_heads"}, 1, kMostHeads));
    if (config.Has("per_layer_config")) {
        WEFT_ASSIGN(const Config layers, config.Sub({"per_layer_config"}));
        WEFT_ASSIGN(const Config own, OfLayer(layers, layer));
        WEFT_ASSIGN(heads.head_dim, own.IntOr({"head_dim"}, 1, kGemmaHeadDim, heads.head_dim));
        WEFT_ASSIGN(heads.kv_heads,
                    own.IntOr({"num_key_value_heads"}, 1, kMostHeads, heads.kv_heads));
        return heads;
    }
    if (slides) return heads;
    WEFT_ASSIGN(heads.head_dim, config.IntOr({"global_head_dim"}, 1, kGemmaHeadDim, 512));
    WEFT_ASSIGN(const bool one_for_both, config.BoolOr({"attention_k_eq_v"}, false));
    if (!one_for_both) return heads;
    WEFT_ASSIGN(heads.kv_heads,
                config.IntOr({"num_global_key_value_heads"}, 1, kMostHeads, heads.kv_heads));
    return heads;
}

// Sets the usual keys for heads: "head_dim" of layers without a window, "num_key_value_heads" by
// layer.
Result<Config> Gemma4Adjust(const Config& config) {
    WEFT_TRY(RefuseOthers(config));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const std::vector<std::string> types, LayerTypes(config, layers));
    Json kv_heads = Json::array();
    Heads of_kind[2];  // [0]: without a window, [1]: windowed
    for (int64_t layer = 0; layer < layers; ++layer) {
        const bool slides = types[static_cast<size_t>(layer)] == "sliding_attention";
        WEFT_ASSIGN(const Heads heads, HeadsOf(config, layer, slides));
        Heads& known = of_kind[slides ? 1 : 0];
        if (known.head_dim != 0 && known != heads) {
            return NotSupported(config, fmt::format("layer {}", layer),
                                "with other heads than other layers of its type");
        }
        known = heads;
        kv_heads.push_back(heads.kv_heads);
    }
    WEFT_ASSIGN(const int64_t used, config.IntOr({"top_k_experts"}, 1, 1 << 16, 1));
    Json adjusted = {{"layer_types", types},
                     {"head_dim", of_kind[0].head_dim},
                     {"windowed_head_dim", of_kind[1].head_dim},
                     {"num_key_value_heads", kv_heads},
                     {"num_experts_per_tok", used}};
    WEFT_ASSIGN(const bool experts, config.BoolOr({"enable_moe_block"}, false));
    if (!experts) adjusted["num_experts"] = nullptr;
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_kv_shared_layers"}, 0, layers - 1, 0));
    WEFT_ASSIGN(const bool wide, config.BoolOr({"use_double_wide_mlp"}, false));
    if (wide && shared > 0) {  // layers that read another layer's KV cache have MLPs twice as wide
        WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"intermediate_size"}, 1, 1 << 19));
        Json list = Json::array();
        for (int64_t layer = 0; layer < layers; ++layer) {
            list.push_back(layer < layers - shared ? ffn : 2 * ffn);
        }
        adjusted["intermediate_size"] = std::move(list);
    }
    return config.With(adjusted);
}

Status Gemma4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta, kGelu4));
    if (config.Has("num_experts")) {
        WEFT_TRY(WriteExperts(config, meta, "moe_intermediate_size", "softmax"));
    }
    if (config.Has("final_logit_softcapping")) {
        WEFT_ASSIGN(const double cap, config.NeedF64({"final_logit_softcapping"}));
        if (!(cap > 0)) return config.Corrupt("final_logit_softcapping", "more than 0, or null");
        meta.F32("final_logit_softcapping", cap);
    }
    WEFT_ASSIGN(const int64_t columns,
                config.IntOr({"hidden_size_per_layer_input"}, 0, 1 << 16, 0));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_kv_shared_layers"}, 0, kMostLayers, 0));
    meta.Int("embedding_length_per_layer_input", columns);
    meta.Int("attention.shared_kv_layers", shared);
    WEFT_ASSIGN(const int64_t windowed, config.IntOr({"windowed_head_dim"}, 0, kGemmaHeadDim, 0));
    if (windowed == 0) return {};  // no layer has a window
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1ll << 31));
    WEFT_TRY(WriteWindow(config, meta, window, nullptr));
    meta.Int("attention.key_length_swa", windowed);
    meta.Int("attention.value_length_swa", windowed);
    meta.Int("rope.dimension_count_swa", windowed);
    return WriteWindowedBase(config, meta);
}

// attention_k_eq_v: layers without a window have no value projection.
Status CheckValues(const Assembly& assembly, int64_t layer, const std::string& prefix) {
    const Config& config = assembly.config();
    constexpr std::string_view kKey = "attention_k_eq_v";
    WEFT_ASSIGN(const bool one_for_both, config.BoolOr({kKey}, false));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    const bool slides = types[static_cast<size_t>(layer)] == "sliding_attention";
    const std::string attention = prefix + "self_attn.";
    const bool values = assembly.HasLinear(attention + "v_proj");
    if (slides || !one_for_both || !values) return {};
    return config.Corrupt(kKey, fmt::format("false, since there is a {}v_proj.weight", attention));
}

// The model's table of per-layer embeddings and the projection to them.
Status AddLayerInputs(Assembly& assembly, const std::string& ends) {
    for (const auto& [gguf, module] :
         {std::pair("per_layer_token_embd.weight", "embed_tokens_per_layer"),
          std::pair("per_layer_model_proj.weight", "per_layer_model_projection")}) {
        WEFT_ASSIGN(MatrixPtr matrix, assembly.Linear(ends + module));
        if (matrix == nullptr) return Missing(assembly, ends + module + ".weight");
        assembly.Add(gguf, std::move(matrix));
    }
    const std::string name = ends + "per_layer_projection_norm.weight";
    WEFT_ASSIGN(MatrixPtr norm, assembly.Column(name));
    if (norm == nullptr) return Missing(assembly, name);
    assembly.AddVector("per_layer_proj_norm.weight", std::move(norm));
    return {};
}

std::string EndsOf(const std::string& prefix) {
    return prefix.substr(0, prefix.rfind("layers."));
}

Status Gemma4Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_TRY(CheckValues(assembly, layer, prefix));
    WEFT_ASSIGN(const int64_t columns,
                assembly.config().IntOr({"hidden_size_per_layer_input"}, 0, 1 << 16, 0));
    return layer > 0 || columns == 0 ? Status() : AddLayerInputs(assembly, EndsOf(prefix));
}

Result<Config> Gemma3nAdjust(const Config& config) {
    WEFT_TRY(RefuseOthers(config));
    return WithLayerTypes(config, 5);
}

// The x for which a standard normal variable is below x with probability p, by bisection.
float Probit(double p) {
    if (p <= 0) return -std::numeric_limits<float>::infinity();
    double low = -40, high = 40;
    for (int i = 0; i < 200; ++i) {
        const double middle = (low + high) / 2;
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return static_cast<float>(low);
}

// activation_sparsity_pattern: a number per layer, one for all layers, or null: 0.95 in the first
// ten layers of more than ten.
Status WriteSparsity(const Config& config, MetaWriter& meta, int64_t layers) {
    constexpr std::string_view kKey = "activation_sparsity_pattern";
    std::vector<float> deviations;
    const Json* const list = config.Has(kKey) ? &config.json()[std::string(kKey)] : nullptr;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        double share = layers > 10 && layer < 10 ? 0.95 : 0;
        if (list != nullptr) {
            const bool one = list->is_number();
            if (!one && (!list->is_array() || list->size() <= at || !(*list)[at].is_number())) {
                return config.Corrupt(kKey, "a number for each layer");
            }
            share = one ? list->get<double>() : (*list)[at].get<double>();
        }
        if (!(share >= 0 && share < 1)) return config.Corrupt(kKey, "0 to less than 1");
        deviations.push_back(Probit(share));
    }
    meta.F32s("activation_sparsity_scale", deviations);
    return {};
}

Status Gemma3nMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta, kGelu4));
    WEFT_ASSIGN(const int64_t active, config.IntOr({"altup_active_idx"}, 0, 1 << 16, 0));
    if (active != 0) return config.Corrupt("altup_active_idx", "0: others are not supported");
    WEFT_TRY(WriteNumbers(config, meta,
                          {{"altup.num_inputs", "altup_num_inputs"},
                           {"laurel_rank", "laurel_rank"},
                           {"embedding_length_per_layer_input", "hidden_size_per_layer_input"}}));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_kv_shared_layers"}, 0, layers, 15));
    WEFT_ASSIGN(const double cap, config.F64Or({"final_logit_softcapping"}, 0));
    meta.Int("attention.shared_kv_layers", shared);
    meta.F32("final_logit_softcapping", cap);
    WEFT_TRY(WriteSparsity(config, meta, layers));
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1ll << 31));
    WEFT_TRY(WriteWindow(config, meta, window, nullptr));
    return WriteWindowedBase(config, meta);
}

Status Gemma3nLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (layer > 0) return {};
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t streams, config.NeedInt({"altup_num_inputs"}, 2, 64));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    const std::string ends = EndsOf(prefix);
    for (const auto& [gguf, module] :
         {std::pair("altup_proj.weight", "altup_projections.*"),
          std::pair("altup_unembd_proj.weight", "altup_unembed_projections.*")}) {
        const std::string name = ends + module;
        const int64_t rows = (streams - 1) * hidden;
        WEFT_ASSIGN(MatrixPtr matrix,
                    assembly.Checked(assembly.Experts(name, streams - 1), name, rows));
        assembly.Add(gguf, std::move(matrix), {hidden, hidden, streams - 1});
    }
    return AddLayerInputs(assembly, ends);
}

constexpr Rule kNormRules4[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm},
    {"layer_output_scale.weight", "layer_scalar", Form::kVector},  // (not of Gemma 3n)
};
// Keys serve as values if there are none. Layers that read another layer's KV cache need neither.
constexpr Rule kHeadRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};
constexpr Rule kLayerInputRules[] = {
    {"inp_gate", "per_layer_input_gate", Form::kLinear, false},
    {"proj", "per_layer_projection", Form::kLinear, false},
    {"post_norm", "post_per_layer_input_norm", Form::kNorm, false},
};
// The router's tensors, in addition to the dense MLP. The experts themselves are one tensor.
constexpr Rule kExpertRules[] = {
    {"ffn_gate_inp", "router.proj", Form::kRouter, false},
    {"ffn_gate_inp.scale", "router.scale", Form::kVector, false},
    {"ffn_down_exps.scale", "router.per_expert_scale", Form::kVector, false},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1", Form::kNorm, false},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2", Form::kNorm, false},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2", Form::kNorm, false},
};
constexpr Rule kAltUpRules[] = {
    {"altup_router", "altup.modality_router", Form::kLinear},
    {"altup_router_norm", "altup.router_norm", Form::kNorm},
    {"altup_predict_coef", "altup.prediction_coefs", Form::kLinear},
    {"altup_correct_coef", "altup.correction_coefs", Form::kLinear},
    {"altup_correct_scale.weight", "altup.correct_output_scale", Form::kVector, false},
    {"laurel_l", "laurel.linear_left", Form::kLinear},
    {"laurel_r", "laurel.linear_right", Form::kLinear},
    {"laurel_post_norm", "laurel.post_laurel_norm", Form::kNorm},
};
constexpr std::string_view kDefaults =
    R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 131072, "sliding_window": 512, "vocab_size": 262144,
        "hidden_size_per_layer_input": 256, "tie_word_embeddings": true, "norm_topk_prob": true,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1000000.0}}})";
// The 12B model, which accepts images and audio without a separate encoder.
constexpr std::string_view kUnifiedDefaults =
    R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 262144, "sliding_window": 1024, "vocab_size": 262144,
        "tie_word_embeddings": true, "norm_topk_prob": true,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1000000.0}}})";

constexpr Family Gemma4(std::string_view model_type, std::string_view also,
                        std::string_view defaults) {
    return {.model_type = model_type,
            .also = also,
            .architecture = "gemma4",
            .rules = {kNormRules4, kHeadRules, kMlpRules, kExpertRules, kLayerInputRules},
            .meta = Gemma4Meta,
            .layer = Gemma4Layer,
            .adjust = Gemma4Adjust,
            .defaults = defaults,
            .rope = {.by_layer_type = true},
            .caps = "final_logit_softcapping"};
}

constexpr Family kFolders[] = {
    {.model_type = "gemma3n_text",
     .also = "gemma3n",
     .architecture = "gemma3n",
     .rules = {std::span(kNormRules4).first(4), kHeadRules, kMlpRules, kLayerInputRules,
               kAltUpRules},
     .meta = Gemma3nMeta,
     .layer = Gemma3nLayer,
     .adjust = Gemma3nAdjust,
     .defaults = R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
                     "max_position_embeddings": 32768, "sliding_window": 512,
                     "vocab_size": 262400, "hidden_size_per_layer_input": 256,
                     "altup_num_inputs": 4, "laurel_rank": 64, "num_kv_shared_layers": 15,
                     "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                     "final_logit_softcapping": 30.0, "intermediate_size": 16384,
                     "num_hidden_layers": 35, "hidden_size": 2048,
                     "tie_word_embeddings": true})",
     .rope = {.by_layer_type = true, .windowed_base = "rope_local_base_freq"},
     .caps = "final_logit_softcapping"},
    Gemma4("gemma4_text", "gemma4", kDefaults),
    Gemma4("gemma4_unified_text", "gemma4_unified", kUnifiedDefaults),
};

// The small models: per-layer embeddings, and last layers that read an earlier layer's KV cache.
Status ReadLayerInputs(const ModelSource& source, Hyper& hyper) {
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = hyper.architecture + ".";
    WEFT_ASSIGN(hyper.layer_columns,
                meta.IntOr(prefix + "embedding_length_per_layer_input", 0, 1 << 16, 0));
    const std::string key = prefix + "attention.shared_kv_layers";
    WEFT_ASSIGN(hyper.shared_kv, meta.IntOr(key, 0, hyper.layers - 1, 0));
    for (int64_t layer = hyper.layers - hyper.shared_kv; layer < hyper.layers; ++layer) {
        if (hyper.KvLayer(layer) != layer) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {} is {}, but layer {} has no earlier layer {} a window whose KV "
                         "cache it could read",
                         source.name(), key, hyper.shared_kv, layer,
                         hyper.IsWindowed(layer) ? "with" : "without");
    }
    return {};
}

// activation_sparsity_scale: by layer, the standard deviations above the mean that a gate must
// exceed.
Status ReadGemma3n(const ModelSource& source, Hyper& hyper) {
    WEFT_TRY(ReadLayerInputs(source, hyper));
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = hyper.architecture + ".";
    AltUp& read = hyper.alt_up;
    WEFT_ASSIGN(read.streams, meta.Int(prefix + "altup.num_inputs", 2, program::kMostStreams));
    WEFT_ASSIGN(const int64_t active, meta.IntOr(prefix + "altup.active_idx", 0, 1 << 16, 0));
    if (active != 0) {
        return MakeError(ErrorCode::kUnsupported, "{}: {}altup.active_idx is {}; expected 0",
                         source.name(), prefix, active);
    }
    WEFT_ASSIGN(read.laurel_rank, meta.IntOr(prefix + "laurel_rank", 1, 1 << 16, 64));
    const std::string key = prefix + "activation_sparsity_scale";
    if (meta.Has(key)) {
        WEFT_ASSIGN(read.deviations, meta.Floats(key));
    } else {
        constexpr float kNone = -std::numeric_limits<float>::infinity();
        for (int64_t layer = 0; layer < hyper.layers; ++layer) {
            read.deviations.push_back(layer < 10 ? 1.6448534f : kNone);
        }
    }
    if (static_cast<int64_t>(read.deviations.size()) >= hyper.layers) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: {} has {} numbers; the model has {} layers",
                     source.name(), key, read.deviations.size(), hyper.layers);
}

// In layers with experts, these and the dense MLP read the same rows, each with its own norms
// before and after. The router reads them normed without a weight, times a vector and hidden^-1/2.
ValueId FeedForward(Builder& b, ValueId x) {
    const int64_t hidden = b.hyper().hidden;
    const ValueId dense = b.DenseMlp(b.Norm(x, "ffn_norm", hidden));
    if (!b.Has("ffn_gate_inp.weight")) return dense;
    const float root = std::sqrt(static_cast<float>(hidden));
    const ValueId gate = b.Scale(b.NormBy(x, "ffn_gate_inp", "scale", hidden), 1.0f / root);
    const ValueId experts = b.Experts(b.Norm(x, "pre_ffw_norm_2", hidden), gate);
    return b.Add(b.Norm(dense, "post_ffw_norm_1", hidden),
                 b.Norm(experts, "post_ffw_norm_2", hidden));
}

ValueId Attended(Builder& b, ValueId x, int64_t head_dim) {
    const ValueId q = b.Norm(b.ToHeads(x, "attn_q", false), "attn_q_norm", head_dim);
    if (b.SharesKv()) return b.SharedAttention(b.Rope(q, false));
    const ValueId key = b.ToKvHeads(x, "attn_k", false);
    const ValueId value = b.Has("attn_v.weight") ? b.ToKvHeads(x, "attn_v", false) : key;
    // (Projections, norms and rotations are grouped, so that a GPU waits once for each kind.)
    const ValueId k = b.Norm(key, "attn_k_norm", head_dim);
    const ValueId v = b.NormPlain(value, head_dim);
    return b.Attention(b.Rope(q, false), b.Rope(k, false), v);
}

// The per-layer input, gated by a projection of x.
ValueId OfLayerInput(Builder& b, ValueId x) {
    const int64_t hidden = b.hyper().hidden, columns = b.hyper().layer_columns;
    const ValueId gate = b.ToAll(x, "inp_gate", columns, hidden);
    const ValueId y = b.Gated(gate, b.LayerInput(), "gated_input");
    return b.Norm(b.ToAll(y, "proj", hidden, columns), "post_norm", hidden);
}

ValueId BuildGemma4(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const int64_t head_dim = b.hyper().HeadsOf(layer).head_dim;
        const ValueId h = b.Norm(x, "attn_norm", hidden);
        const ValueId a = Attended(b, h, head_dim);
        x = b.Add(x, b.Norm(b.FromHeads(a, "attn_output"), "post_attention_norm", hidden));

        x = b.Add(x, b.Norm(FeedForward(b, x), "post_ffw_norm", hidden));
        if (b.hyper().layer_columns > 0) x = b.Add(x, OfLayerInput(b, x));
        x = b.ScaleBy(x, "layer_output_scale.weight");
    }
    return x;
}

ValueId BuildGemma3n(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId predicted = b.Predicted(x), first = b.FirstStream(predicted);
        const ValueId h = b.Norm(first, "attn_norm", hidden), laurel = b.Laurel(h);
        const ValueId a = b.FromHeads(Attended(b, h, b.hyper().head_dim), "attn_output");
        const ValueId attended = b.Add(first, b.Norm(a, "post_attention_norm", hidden));
        const ValueId y = b.Scale(b.Add(attended, laurel), std::sqrt(0.5f));
        const ValueId m =
            b.Norm(b.DenseMlp(b.Norm(y, "ffn_norm", hidden)), "post_ffw_norm", hidden);
        x = b.Corrected(predicted, b.Add(y, m));
        x = b.AddToOthers(x, OfLayerInput(b, b.FirstStream(x, "altup_correct_scale")));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family =
         {"gemma3n", "Gemma 3n (text: E4B, E2B)",
          "AltUp, LAuReL, MLPs with few active columns, embeddings by layer, shared KV caches",
          "gemma3n"},
     .build = BuildGemma3n,
     .read = ReadGemma3n,
     .traits = {.window_pattern = 5,
                .activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .logit_cap = 30,
                .plain_scores = true,
                .plain_windows = true,
                .windowed_base = 10000}},
    {.family = {"gemma4", "Gemma 4 (text: 31B, 26B-A4B, 12B, E4B, E2B)",
                "heads that differ by layer, V from K; experts beside a dense MLP; embeddings by "
                "layer, shared KV caches",
                "gemma4, gemma4Moe, gemma4Small, gemma4Wide"},
     .build = BuildGemma4,
     .read = ReadLayerInputs,
     .experts = true,
     .traits = {.activation = Activation::kGeluTanh,
                .embeds_by_root = true,
                .plain_scores = true,
                .plain_windows = true,
                .windowed_base = 10000}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gemma4
