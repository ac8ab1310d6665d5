// Nemotron-H, Nemotron Nano 2 and Nemotron 3, dense and with experts (NVIDIA 2025): each layer is a
// Mamba-2 layer, attention without positions, or an MLP or experts with ReLU squared, as its
// tensors show. The largest models project rows to fewer columns for their experts.
#include "families/family.h"
#include "model_files/hf/mamba.h"

namespace weft::families::nemotron_h {

enum class NemotronLayer : uint8_t { kMamba, kAttention, kMlp, kExperts };

// Layer kinds from layers_block_type, in one of two spellings, or from the letters of
// hybrid_override_pattern.
Result<std::vector<NemotronLayer>> NemotronLayers(const Config& config) {
    constexpr std::string_view kList = "layers_block_type", kLetters = "hybrid_override_pattern";
    constexpr std::pair<std::string_view, NemotronLayer> kNames[] = {
        {"M", NemotronLayer::kMamba},     {"mamba", NemotronLayer::kMamba},
        {"*", NemotronLayer::kAttention}, {"linear_attention", NemotronLayer::kMamba},
        {"-", NemotronLayer::kMlp},       {"attention", NemotronLayer::kAttention},
        {"E", NemotronLayer::kExperts},   {"full_attention", NemotronLayer::kAttention},
        {"mlp", NemotronLayer::kMlp},     {"moe", NemotronLayer::kExperts}};
    WEFT_ASSIGN(std::vector<std::string> types, config.Strings({kList}));
    WEFT_ASSIGN(const std::string letters, config.StringOr({kLetters}, ""));
    const std::string_view key = types.empty() ? kLetters : kList;
    for (size_t i = 0; key == kLetters && i < letters.size(); ++i) types.push_back({letters[i]});
    std::vector<NemotronLayer> layers;
    for (const std::string& type : types) {
        const auto* found = std::ranges::find(kNames, std::string_view(type),
                                              &std::pair<std::string_view, NemotronLayer>::first);
        if (found == std::end(kNames)) {
            return config.Corrupt(key, "only Mamba (M), attention (*), MLP (-) and experts (E)");
        }
        layers.push_back(found->second);
    }
    if (!layers.empty() && layers.size() <= kMostLayers) return layers;
    return config.Corrupt(key, fmt::format("the kinds of 1 to {} layers", kMostLayers));
}

Result<bool> NemotronHasExperts(const Config& config) {
    WEFT_ASSIGN(const std::vector<NemotronLayer> layers, NemotronLayers(config));
    return std::ranges::find(layers, NemotronLayer::kExperts) != layers.end();
}

// Sets heads and columns by layer, as in GGUF files.
Result<Config> NemotronAdjust(const Config& config) {
    WEFT_TRY(CheckSteps(config));
    WEFT_TRY(config.MustBe("mlp_hidden_act", "relu2"));
    WEFT_TRY(config.MustBe("mamba_hidden_act", "silu"));
    WEFT_ASSIGN(const std::vector<NemotronLayer> layers, NemotronLayers(config));
    WEFT_ASSIGN(const double eps, config.NeedF64({"layer_norm_epsilon"}));
    WEFT_ASSIGN(const int64_t kv,
                config.NeedInt({"num_key_value_heads", "num_attention_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const int64_t head_dim,
                config.IntOr({"head_dim", "attention_head_dim"}, 1, 1024, 128));
    Json heads = Json::array(), dense = Json::array();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
        heads.push_back(layers[layer] == NemotronLayer::kAttention ? kv : 0);
        if (layers[layer] == NemotronLayer::kMlp) dense.push_back(layer);
    }
    Json over = {{"num_hidden_layers", layers.size()},
                 {"layer_types", Json::array()},
                 {"num_key_value_heads", heads},
                 {"mlp_only_layers", dense},
                 {"rms_norm_eps", eps},
                 {"head_dim", head_dim}};
    WEFT_ASSIGN(const bool experts, NemotronHasExperts(config));
    if (experts) {
        WEFT_ASSIGN(const int64_t shared,
                    config.NeedInt({"moe_shared_expert_intermediate_size"}, 0, kMostColumns));
        over["shared_expert_intermediate_size"] = shared;
    }
    return config.With(over);
}

Result<MambaShape> NemotronShape(const Config& config) {
    MambaShape s{};
    WEFT_ASSIGN(s.heads, config.NeedInt({"mamba_num_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(s.head_dim, config.NeedInt({"mamba_head_dim"}, 1, 1024));
    WEFT_ASSIGN(s.groups, config.NeedInt({"mamba_n_groups", "n_groups"}, 1, s.heads));
    WEFT_ASSIGN(s.state, config.NeedInt({"ssm_state_size"}, 1, 1024));
    WEFT_ASSIGN(s.taps, config.NeedInt({"mamba_d_conv", "conv_kernel"}, 2, 64));
    return s;
}

// Columns of the layer's MLP, or of an expert; 0 in other layers.
Status WriteMlpLengths(const Config& config, MetaWriter& meta, bool experts) {
    WEFT_ASSIGN(const std::vector<NemotronLayer> layers, NemotronLayers(config));
    const std::string_view key = experts ? "moe_intermediate_size" : "intermediate_size";
    WEFT_ASSIGN(int64_t length, config.NeedInt({key}, 1, kMostColumns));
    const bool dense = std::ranges::find(layers, NemotronLayer::kMlp) != layers.end();
    if (experts && dense) {
        WEFT_ASSIGN(length, config.NeedInt({"intermediate_size"}, 1, kMostColumns));
    }
    std::vector<int64_t> lengths;
    for (const NemotronLayer layer : layers) {
        const bool mlp = layer == NemotronLayer::kMlp || layer == NemotronLayer::kExperts;
        lengths.push_back(mlp ? length : 0);
    }
    meta.Ints("feed_forward_length", lengths);
    return {};
}

Status NemotronMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const MambaShape shape, NemotronShape(config));
    WEFT_ASSIGN(const bool experts, NemotronHasExperts(config));
    WEFT_TRY(WriteCommon(config.With(Json{{"intermediate_size", nullptr}}), meta, "relu2"));
    // llama.cpp needs this key, although the norms are RMS norms.
    WEFT_ASSIGN(const double eps, config.NeedF64({"rms_norm_eps"}));
    meta.F32("attention.layer_norm_epsilon", eps);
    WEFT_TRY(WriteMlpLengths(config, meta, experts));
    WriteMamba(shape, meta);
    meta.Bool("rope.scaling.finetuned", false);  // how llama.cpp marks attention without positions
    if (!experts) return {};
    WEFT_ASSIGN(const int64_t latent, config.IntOr({"moe_latent_size"}, 1, kMostColumns, 0));
    if (latent != 0) meta.Int("moe_latent_size", latent);
    return WriteExperts(config, meta, "moe_intermediate_size", "sigmoid");
}

Status NemotronTensors(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const std::vector<NemotronLayer> layers, NemotronLayers(assembly.config()));
    const NemotronLayer kind = layers[static_cast<size_t>(layer)];
    if (kind == NemotronLayer::kMamba) {
        WEFT_ASSIGN(const MambaShape shape, NemotronShape(assembly.config()));
        return AddMamba(assembly, layer, prefix + "mixer.", shape);
    }
    if (kind != NemotronLayer::kExperts) return {};
    // transformers 5 may write stacked experts: [experts, rows, columns].
    WEFT_ASSIGN(const int64_t count, assembly.ExpertCount());
    for (const auto& [gguf, name] :
         {std::pair{"ffn_up", "up_proj"}, std::pair{"ffn_down", "down_proj"}}) {
        WEFT_ASSIGN(MatrixPtr all, assembly.Tensor(prefix + "mixer.experts." + name));
        if (all == nullptr) continue;
        if (all->rows() % count != 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}mixer.experts.{}' has {} rows; expected a multiple of {} "
                             "experts",
                             assembly.folder(), prefix, name, all->rows(), count);
        }
        assembly.AddExperts(layer, gguf, std::move(all), count);
    }
    return {};
}

constexpr Rule kNemotronRules[] = {
    {"attn_norm.weight", "norm.weight", Form::kVector},
    {"attn_q", "mixer.q_proj", Form::kLinear, false},
    {"attn_k", "mixer.k_proj", Form::kLinear, false},
    {"attn_v", "mixer.v_proj", Form::kLinear, false},
    {"attn_output", "mixer.o_proj", Form::kLinear, false},
    {"ffn_up", "mixer.up_proj", Form::kLinear, false},
    {"ffn_down", "mixer.down_proj", Form::kLinear, false},
    // (PEFT adapts no out_proj of this family.)
    {"ssm_in", "mixer.in_proj", Form::kNamed, false},
};
constexpr Rule kNemotronExpertRules[] = {
    {"ffn_gate_inp", "mixer.gate", Form::kRouter, false},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias", Form::kVector, false},
    {"ffn_up_exps", "mixer.experts.*.up_proj", Form::kExperts, false},
    {"ffn_down_exps", "mixer.experts.*.down_proj", Form::kExperts, false},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj", Form::kLinear, false},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj", Form::kLinear, false},
    {"ffn_latent_down", "mixer.fc1_latent_proj", Form::kLinear, false},
    {"ffn_latent_up", "mixer.fc2_latent_proj", Form::kLinear, false},
};
constexpr Family kNemotron = {.model_type = "nemotron_h",
                              .architecture = "nemotron_h",
                              .rules = {kNemotronRules},
                              .meta = NemotronMeta,
                              .layer = NemotronTensors,
                              .adjust = NemotronAdjust,
                              .defaults = R"({"layer_norm_epsilon": 1e-5, "num_key_value_heads": 8,
                    "intermediate_size": 21504, "ssm_state_size": 128, "mamba_num_heads": 128,
                    "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4})",
                              .embedding = "embeddings",
                              .final_norm = "norm_f",
                              .more_tensors = "ssm_conv1d.weight ssm_conv1d.bias ssm_norm.weight"};

constexpr Family kFolders[] = {
    Like(kNemotron,
         [](Family& family) {
             family.architecture = "nemotron_h_moe";
             family.rules[1] = kNemotronExpertRules;
             family.fits = NemotronHasExperts;
             family.routing = kGroupRouting;
             family.defaults =
                 R"({"layer_norm_epsilon": 1e-5, "num_key_value_heads": 8,
                    "intermediate_size": 21504, "ssm_state_size": 128, "mamba_num_heads": 128,
                    "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 8,
                    "n_shared_experts": 1, "moe_intermediate_size": 7688,
                    "moe_shared_expert_intermediate_size": 7688, "num_experts_per_tok": 2,
                    "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1,
                    "norm_topk_prob": true})";
         }),
    kNemotron,
};

ValueId BuildNemotronH(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        const ValueId h = b.Norm(x, "attn_norm", b.hyper().hidden);
        if (b.HasState()) {
            x = b.Add(x, b.Mamba2(h));
        } else if (b.Has("attn_q.weight")) {
            const ValueId q = b.ToHeads(h, "attn_q", false), k = b.ToKvHeads(h, "attn_k", false);
            const ValueId a = b.Attention(q, k, b.ToKvHeads(h, "attn_v", false));
            x = b.Add(x, b.FromHeads(a, "attn_output"));
        } else {
            x = b.Add(x, b.Mlp(h));
        }
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"nemotron_h", "Nemotron-H, Nemotron Nano 2",
                "Mamba-2, attention without positions, MLPs of ReLU squared", "nemotronH"},
     .build = BuildNemotronH,
     .traits = {.ungated = Ungated::kReluSquared,
                .rotates = false,
                .recurrent = Recurrent::Kind::kMamba2}},
    {.family = {"nemotron_h_moe", "Nemotron 3 (Nano, Super, Ultra)",
                "the same, with ungated experts, a shared one, latent experts",
                "nemotronHMoe, nemotronHLatent"},
     .build = BuildNemotronH,
     .experts = true,
     .traits = {.ungated = Ungated::kReluSquared,
                .rotates = false,
                .gate_score = GateScore::kSigmoid,
                .recurrent = Recurrent::Kind::kMamba2}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::nemotron_h
