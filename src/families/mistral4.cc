// Mistral Small 4 and Large 4 (Mistral AI 2026): DeepSeek's latent attention and experts. In Large
// 4, an indexer chooses positions, layers share latents, and some layers have no positions.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::mistral4 {

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

constexpr Family kFolders[] = {
    Like(LatentFamily(
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
             Mistral4Adjust, "mistral4"),
         [](Family& family) {
             family.rope.temperature = true;
             family.draft_head = nullptr;
         }),
    // Queries are projected directly; other differences are described at their functions.
    Like(LatentFamily("mistral_large4", MistralLarge4Meta,
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
                      IndexedAdjust, "mistral-large4"),
         [](Family& family) {
             family.also = "mistral_large4_text";
             family.routing =
                 "n_group topk_group routed_scaling_factor";  // weights are not normalized
             family.rope.reads_interleave = false;
             family.rules = {kMistralLarge4Rules, kMistralLarge4MoeRules};
             family.layer = MistralLarge4Layer;
             family.caps = "final_logit_softcapping";
             family.embedding = "tok_embeddings";
         }),
};

// Layers without rotated columns, and layers that read the latents of another layer, which must
// have rotated columns if they do.
Status ReadLatentLayers(const ModelSource& source, Hyper& hyper) {
    if (hyper.latent.rank == 0) return {};
    const std::string rope = hyper.architecture + ".rope.layers";
    const std::string from = hyper.architecture + ".attention.kv_source_layers";
    WEFT_ASSIGN(const std::vector<int64_t> rotated, source.meta().Ints(rope));
    WEFT_ASSIGN(hyper.kv_sources, source.meta().Ints(from));
    const auto layers = static_cast<size_t>(hyper.layers);
    if (rotated.size() < layers || hyper.kv_sources.size() < layers) {
        return MakeError(
            ErrorCode::kCorrupt, "{}: {} and {} have entries for {} and {} layers; expected {}",
            source.name(), rope, from, rotated.size(), hyper.kv_sources.size(), layers);
    }
    for (size_t i = 0; i < layers; ++i) hyper.latent.plain.push_back(rotated[i] == 0);
    hyper.kv_sources.resize(layers);
    for (int64_t layer = 0; layer < hyper.layers; ++layer) {
        const int64_t own = hyper.kv_sources[static_cast<size_t>(layer)];
        const bool known = own >= 0 && own <= layer && hyper.KvLayer(own) == own;
        if (known && hyper.latent.IsPlain(own) == hyper.latent.IsPlain(layer)) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {}: layer {} reads the cache of {}; expected its own, or that of an "
                         "earlier layer of its kind that has one",
                         source.name(), from, layer, own);
    }
    return {};
}

constexpr Architecture kArchitectures[] = {
    {.family = {"mistral4", "Mistral Small 4", "latent attention, YaRN, temperature", "mistral4"},
     .build = LatentLayers,
     .experts = true,
     .traits = {.temperature = true, .renormalises = false, .two_best = true}},
    {.family = {"mistral-large4", "Mistral Large 4 (text, folders)",
                "sparse latent attention, latents shared by layers, layers without positions, "
                "temperature by head, a soft cap",
                "mistralLarge4"},
     .build = LatentLayers,
     .read = ReadLatentLayers,
     .experts = true,
     .traits = {.usual_latent_eps = true,
                .scales_latents = true,
                .indexer = IndexerKind::kAlways,
                .indexer_neighbours = true,
                .two_best = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::mistral4
