// SmolLM3 (Hugging Face 2025): Llama's block, but every fourth layer has no positional encoding
// (NoPE, Kazemnejad et al. 2023).
#include "families/family.h"

namespace weft::families::smollm3 {

// GGUF's smollm3 has no RoPE in every fourth layer; rope.layers, Weft's own key, changes that.
Status SmolLm3Meta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const std::vector<int64_t> given, config.Ints({"no_rope_layers"}));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"no_rope_layer_interval"}, 1, 4096, 4));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    std::vector<bool> rotated;
    bool usual = true;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<size_t>(layer);
        rotated.push_back(at < given.size() ? given[at] != 0 : (layer + 1) % step != 0);
        usual = usual && rotated.back() == ((layer + 1) % 4 != 0);
    }
    if (!usual) meta.Bools("rope.layers", rotated);
    // (In transformers, the types alone make windows; by default, those of layers without RoPE.)
    WEFT_ASSIGN(const bool windows, config.BoolOr({"use_sliding_window"}, false));
    if (!config.Has("sliding_window") || !(windows || config.Has("layer_types"))) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostContext));
    if (config.Has("layer_types")) {
        return WriteWindow(config, meta, window, [](int64_t) { return true; });
    }
    Json types = Json::array();
    for (const bool rotates : rotated) {
        types.push_back(rotates ? "full_attention" : "sliding_attention");
    }
    return WriteWindow(config.With(Json{{"layer_types", types}}), meta, window,
                       [](int64_t) { return true; });
}

constexpr Family kFolders[] = {
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .meta = SmolLm3Meta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 32768, "rope_theta": 2000000.0,
                     "tie_word_embeddings": true})",
     .written = {.name = "SmolLM3ForCausalLM", .mlp_bias = true}},
};

ValueId BuildSmolLm3(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        ValueId q = b.ToHeads(h, "attn_q", false);
        ValueId k = b.ToKvHeads(h, "attn_k", false);
        const bool listed = !b.hyper().rotated.empty();
        if (listed ? b.Rotates() : (layer + 1) % 4 != 0) {
            q = b.Rope(q, true);
            k = b.Rope(k, true);
        }
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        x = b.Add(x, b.FromHeads(b.Attention(q, k, v), "attn_output"));

        x = b.Add(x, b.Mlp(b.Norm(x, "ffn_norm", b.hyper().hidden)));
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"smollm3", "SmolLM 3", "layers without positions, windows",
                "smollm3, smollm3Windows"},
     .build = BuildSmolLm3,
     .traits = {.lists_rotation = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::smollm3
