// Hy4 (Tencent 2026): streams that are not mixed, and GLM 5's attention with sinks and gates by
// column.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::hy4 {

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

constexpr Family kFolders[] = {Like(
    IndexedFamily("hy_v4", "hy_v4", Hy4Meta,
                  R"({"max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "kv_lora_rank": 512,
                      "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
                      "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 768, "n_group": 1,
                      "topk_group": 1, "routed_scaling_factor": 2.827, "norm_topk_prob": true,
                      "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 16, "hc_mult": 4,
                      "hc_magnitude": 2.0, "hc_eps": 1e-6, "swiglu_limit": 10.0})"),
    [](Family& family) {
        family.rules = {kPreNormRules, kHy4Rules, kMoeRules, kSharedExpertsRules};
        family.adjust = Hy4Adjust;
        family.layer = Hy4Layer;
        family.draft_head = nullptr;
        family.more_tensors =
            "attn_q_b.weight attn_kv_a_mqa.weight indexer.attn_q_b.weight indexer.attn_k.weight "
            "indexer.k_norm.weight indexer.k_norm.bias attn_k_b.weight attn_v_b.weight "
            "attn_gate.weight attn_gate.columns attn_sinks.weight";
    })};

constexpr Architecture kArchitectures[] = {
    {.family =
         {"hy_v4", "Hy4",
          "hyper-connections, sparse latent attention, layers that share a choice, sinks, gates "
          "by column, leading dense layers",
          "hyV4, hyV4Top"},
     .build = LatentStreamLayers,
     .experts = true,
     .traits = {.limits = true,
                .limits_gate = true,
                .limits_routed = true,
                .indexer_neighbours = true,
                .index_last = true,
                .streams = Streams::kIndependent,
                .gate_score = GateScore::kSigmoid}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::hy4
