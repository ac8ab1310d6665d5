// Llama 4 (Meta 2025): layers with chunked attention rotate queries and keys, and may norm them
// after that, without a weight; the other layers have no positions, only the temperature of
// queries. Layers are dense, or have a shared expert and routed ones whose input is multiplied by
// the expert weight. MobileLLM-R1 has neither chunks nor experts. Folders have the experts in one
// tensor, [experts, in, out], or, if quantized, in one tensor each.
#include "families/family.h"

namespace weft::families::llama4 {

constexpr std::string_view kChunked = "chunked_attention", kWhole = "full_attention";

// By layer: whether it rotates queries and keys.
Result<std::vector<int64_t>> RotatingLayers(const Config& config, int64_t layers) {
    WEFT_ASSIGN(std::vector<int64_t> rotating, config.Ints({"no_rope_layers"}));
    if (!rotating.empty() && static_cast<int64_t>(rotating.size()) < layers) {
        return config.Corrupt("no_rope_layers",
                              fmt::format("a number for each of {} layers", layers));
    }
    WEFT_ASSIGN(const int64_t step, config.IntOr({"no_rope_layer_interval"}, 1, kMostLayers, 4));
    for (int64_t layer = static_cast<int64_t>(rotating.size()); layer < layers; ++layer) {
        rotating.push_back((layer + 1) % step != 0);
    }
    return rotating;
}

// layer_types, with chunks as windows. The layers with chunks must be those with RoPE; without
// chunks, all layers must have RoPE.
Result<Json> LayerTypes4(const Config& config, int64_t layers) {
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const std::vector<int64_t> rotating, RotatingLayers(config, layers));
    if (!types.empty() && static_cast<int64_t>(types.size()) != layers) {
        return config.Corrupt("layer_types", fmt::format("{} values, one per layer", layers));
    }
    const bool chunks = config.Has("attention_chunk_size");
    for (int64_t layer = static_cast<int64_t>(types.size()); layer < layers; ++layer) {
        const bool rotates = rotating[static_cast<size_t>(layer)] != 0;
        types.emplace_back(chunks && rotates ? kChunked : kWhole);
    }
    const bool any = std::ranges::find(types, kChunked) != types.end();
    Json named = Json::array();
    for (size_t layer = 0; layer < types.size(); ++layer) {
        const bool chunked = types[layer] == kChunked;
        if (!chunked && types[layer] != kWhole) {
            return config.Corrupt("layer_types", "chunked_attention or full_attention");
        }
        if ((chunked || !any) != (rotating[layer] != 0)) {
            return config.Corrupt("no_rope_layers",
                                  "1 for exactly the layers of type chunked_attention; or, if "
                                  "there are none, for all layers");
        }
        named.push_back(chunked ? "sliding_attention" : "full_attention");
    }
    return named;
}

// Whether all layers are dense, which config.json states in one of several ways.
Result<bool> IsDense4(const Config& config) {
    WEFT_ASSIGN(const int64_t experts, config.NeedInt({"num_local_experts"}, 0, 1 << 16));
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"interleave_moe_layer_step"}, 0, kMostLayers));
    WEFT_ASSIGN(const std::vector<int64_t> named, config.Ints({"moe_layers"}));
    const bool none = config.Has("moe_layers") ? named.empty() : step == 0;
    return experts == 0 || none;
}

// Sets the usual keys: the columns of a dense MLP, of an expert and of the shared expert, and
// chunks as windows.
Result<Config> Llama4Adjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const Json types, LayerTypes4(config, layers));
    WEFT_ASSIGN(const int64_t dense, config.NeedInt({"intermediate_size_mlp"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t expert, config.NeedInt({"intermediate_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const bool all_dense, IsDense4(config));
    Json over = {{"layer_types", types},
                 {"intermediate_size", dense},
                 {"moe_intermediate_size", expert},
                 {"shared_expert_intermediate_size", expert},
                 {"sliding_window", nullptr}};
    if (all_dense) over["num_local_experts"] = nullptr;
    if (std::ranges::find(types, "sliding_attention") != types.end()) {
        WEFT_ASSIGN(over["sliding_window"],
                    config.NeedInt({"attention_chunk_size"}, 1, kMostContext));
    }
    return config.With(over);
}

// A flag that is a number in some folders.
Result<bool> Flag(const Config& config, std::string_view key) {
    if (config.Has(key) && config.json()[key].is_number()) return config.json()[key] != 0;
    return config.BoolOr({key}, true);
}

// GGUF files have a chunk size of 0 if no layer has chunks, and a pattern only if it differs from
// the usual one, in which every fourth layer has none.
Status WriteChunks(const Config& config, MetaWriter& meta) {
    if (!config.Has("sliding_window")) {
        meta.Int("attention.sliding_window", 0);
        return {};
    }
    WEFT_ASSIGN(const int64_t chunk, config.NeedInt({"sliding_window"}, 1, kMostContext));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    bool usual = true;
    for (size_t layer = 0; layer < types.size(); ++layer) {
        usual = usual && (types[layer] == "full_attention") == ((layer + 1) % 4 == 0);
    }
    if (usual) {
        meta.Int("attention.sliding_window", chunk);
    } else {
        WEFT_TRY(WriteWindow(config, meta, chunk, nullptr));
    }
    WEFT_ASSIGN(const bool tuned, Flag(config, "attn_temperature_tuning"));
    WEFT_ASSIGN(const double scale, config.NeedF64({"attn_scale"}));
    WEFT_ASSIGN(const int64_t length, config.NeedInt({"floor_scale"}, 1, kMostContext));
    meta.F32("attention.temperature_scale", tuned ? scale : 0.0);
    meta.Int("attention.temperature_length", length);
    return {};
}

Status Llama4Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_TRY(WriteChunks(config, meta));
    WEFT_ASSIGN(const bool unit_heads, config.BoolOr({"use_qk_norm"}, true));
    meta.Bool("attention.use_qk_norm", unit_heads);
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"interleave_moe_layer_step"}, 0, kMostLayers));
    meta.Int("interleave_moe_layer_step", step);
    if (!config.Has("num_local_experts")) return {};
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

// [experts, rows, cols] in the folder, transposed to [experts, cols, rows].
Result<MatrixPtr> TurnedExperts(Assembly& assembly, const std::string& name, int64_t experts) {
    WEFT_ASSIGN(MatrixPtr matrix, assembly.Tensor(name));
    if (matrix == nullptr || matrix->rows() % experts != 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: '{}' is missing, or its rows are not a multiple of {} experts",
                         assembly.folder(), name, experts);
    }
    const int64_t group = matrix->rows() / experts;
    return Transposed(std::move(matrix), group);
}

Status AddFused(Assembly& assembly, int64_t layer, const std::string& experts, int64_t count) {
    for (const int64_t half : {0, 1}) {
        WEFT_ASSIGN(MatrixPtr both, TurnedExperts(assembly, experts + "gate_up_proj", count));
        const int64_t rows = both->rows() / (2 * count);
        if (both->rows() != 2 * rows * count) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}gate_up_proj' has {} columns; expected an even number (gate "
                             "and up)",
                             assembly.folder(), experts, both->rows() / count);
        }
        assembly.AddExperts(layer, half == 0 ? "ffn_gate" : "ffn_up",
                            SomeRows(std::move(both), half * rows, rows, 2 * rows, rows * count),
                            count);
    }
    WEFT_ASSIGN(MatrixPtr down, TurnedExperts(assembly, experts + "down_proj", count));
    assembly.AddExperts(layer, "ffn_down", std::move(down), count);
    return {};
}

Status Llama4Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (!assembly.config().Has("num_local_experts")) return {};
    const std::string experts = prefix + "feed_forward.experts.";
    WEFT_ASSIGN(const int64_t count, assembly.ExpertCount());
    if (assembly.Has(experts + "gate_up_proj")) return AddFused(assembly, layer, experts, count);
    for (const std::string name : {"gate", "up", "down"}) {
        WEFT_ASSIGN(MatrixPtr stack, assembly.Experts(experts + "*." + name + "_proj", count));
        if (stack == nullptr) continue;
        assembly.AddExperts(layer, "ffn_" + name, std::move(stack), count);
    }
    return {};
}

// A layer is dense or has experts, so none of these is needed in every layer.
constexpr Rule kLlama4Rules[] = {
    {"ffn_%", "feed_forward.%_proj", Form::kLinear, false},
    {"ffn_gate_inp", "feed_forward.router", Form::kRouter, false},
    {"ffn_%_shexp", "feed_forward.shared_expert.%_proj", Form::kLinear, false},
};

constexpr Family kFolders[] = {
    {.model_type = "llama4_text",
     .also = "llama4",
     .architecture = "llama4",
     .rules = {kPreNormRules, kAttentionRules, kLlama4Rules},
     .meta = Llama4Meta,
     .layer = Llama4Layer,
     .adjust = Llama4Adjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "head_dim": 128, "num_key_value_heads": 8, "rope_theta": 500000.0,
                     "intermediate_size_mlp": 16384, "intermediate_size": 8192,
                     "num_local_experts": 16, "num_experts_per_tok": 1,
                     "interleave_moe_layer_step": 1, "attention_chunk_size": 8192,
                     "attn_temperature_tuning": true, "attn_scale": 0.1,
                     "floor_scale": 8192, "use_qk_norm": true})"},
};

Status ReadLlama4(const ModelSource& source, Hyper& hyper) {
    hyper.chunked = hyper.window > 0;
    // The published model with 128 experts has no such norm, and GGUF has no key for it.
    WEFT_ASSIGN(hyper.unit_heads,
                source.meta().BoolOr("llama4.attention.use_qk_norm", hyper.moe.experts != 128));
    return {};
}

ValueId BuildLlama4(Builder& b, ValueId x) {
    const Hyper& hyper = b.hyper();
    const auto turned = [&](ValueId heads) {
        const ValueId y = b.Rope(heads, true);
        return hyper.unit_heads ? b.NormPlain(y, hyper.head_dim) : y;
    };
    return PreNormLayers(b, x, [&](ValueId h) {
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        const bool rotates = !hyper.chunked || b.IsWindowed();
        if (rotates) k = turned(k);
        q = rotates ? turned(q) : b.Tempered(q);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"llama4", "Llama 4 (text), MobileLLM-R1",
                "attention in chunks, layers without positions, temperature, a shared expert",
                "llama4, llama4Dense"},
     .build = BuildLlama4,
     .read = ReadLlama4,
     .experts = true,
     .traits = {.window = 8192,
                .window_pattern = 4,
                .temperature = true,
                .gate_score = GateScore::kSigmoid,
                .renormalises = false,
                .weighs_input = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::llama4
