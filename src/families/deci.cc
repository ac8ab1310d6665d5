// Llama-Nemotron (NVIDIA 2025, in DeciLM's format): Llama's block. An architecture search removed
// attention or the MLP from some layers and changed the number of MLP columns in others.
#include "families/family.h"

namespace weft::families::deci {

// The description of attention or MLP of a layer in block_configs; an empty object if absent.
Result<Config> HalfOf(const Config& config, size_t layer, std::string_view half) {
    const Json& blocks = config.json()["block_configs"];
    if (!blocks[layer].is_object()) return config.Corrupt("block_configs", "objects");
    WEFT_ASSIGN(const Config block, Config::Parse(blocks[layer].dump(), config.where()));
    WEFT_ASSIGN(const Config one, block.Sub({half}));
    for (const std::string_view key : {"replace_with_linear", "sparsify", "window_length",
                                       "unshifted_sink", "num_sink_tokens"}) {
        if (!one.Has(key) || one.json()[key] == false) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: block_configs: '{}' of layer {} is not supported", config.where(),
                         key, layer);
    }
    return one;
}

// Heads and columns by layer; 0: the layer lacks attention or the MLP.
Result<Config> DeciAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    const Json& json = config.json();
    if (!json.contains("block_configs") || !json["block_configs"].is_array() ||
        json["block_configs"].size() != static_cast<size_t>(layers)) {
        return config.Corrupt("block_configs", fmt::format("{} values, one per layer", layers));
    }
    Json kv = Json::array(), ffn = Json::array();
    for (size_t layer = 0; layer < static_cast<size_t>(layers); ++layer) {
        WEFT_ASSIGN(const Config attention, HalfOf(config, layer, "attention"));
        WEFT_ASSIGN(const Config mlp, HalfOf(config, layer, "ffn"));
        WEFT_ASSIGN(const bool rests, attention.BoolOr({"no_op"}, false));
        WEFT_ASSIGN(const bool without, mlp.BoolOr({"no_op"}, false));
        int64_t group = 0, columns = 0;
        if (!rests) {
            WEFT_ASSIGN(group, attention.NeedInt({"n_heads_in_group"}, 1, heads));
        }
        if (!without) {
            WEFT_ASSIGN(const double factor, mlp.NeedF64({"ffn_mult"}));
            if (!(factor > 0 && factor < 1e4)) return mlp.Corrupt("ffn_mult", "a number above 0");
            columns = static_cast<int64_t>(2 * factor * static_cast<double>(hidden) / 3);
            columns = (columns + 255) / 256 * 256;
        }
        kv.push_back(rests ? 0 : heads / group);
        ffn.push_back(columns);
    }
    const Json over = {{"num_key_value_heads", std::move(kv)},
                       {"intermediate_size", std::move(ffn)}};
    return config.With(over);
}

// No rule requires a tensor in all layers, so a layer's tensors are checked against config.json.
Status DeciLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const size_t at = static_cast<size_t>(layer);
    WEFT_ASSIGN(const std::vector<int64_t> kv, assembly.config().Ints({"num_key_value_heads"}));
    WEFT_ASSIGN(const std::vector<int64_t> ffn, assembly.config().Ints({"intermediate_size"}));
    for (const auto& [name, expected] :
         {std::pair{"input_layernorm", kv[at] > 0}, std::pair{"self_attn.q_proj", kv[at] > 0},
          std::pair{"self_attn.o_proj", kv[at] > 0},
          std::pair{"post_attention_layernorm", ffn[at] > 0},
          std::pair{"mlp.down_proj", ffn[at] > 0}}) {
        if (assembly.HasLinear(prefix + name) == expected) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor '{}{}.weight' is {}, against block_configs of config.json",
                         assembly.folder(), prefix, name, expected ? "missing" : "there");
    }
    return {};
}

constexpr Rule kDeciRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
    {"ffn_%", "mlp.%_proj", Form::kLinear, false},
};

constexpr Family kFolders[] = {
    {.model_type = "nemotron-nas",
     .architecture = "deci",
     .rules = {kDeciRules, kSomeAttentionRules},
     .layer = DeciLayer,
     .pairs = true,
     .adjust = DeciAdjust,
     .defaults = R"({"max_position_embeddings": 2048})"},
};

ValueId BuildDeci(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        if (b.Has("attn_output.weight")) {
            x = b.Add(x, RotatedAttention(b, b.Norm(x, "attn_norm", hidden), true));
        }
        if (b.Has("ffn_down.weight")) x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", hidden)));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"deci", "Llama-3.3-Nemotron-Super", "layers without attention or MLP", "deci"},
     .build = BuildDeci},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::deci
