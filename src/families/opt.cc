// OPT (Zhang et al. 2022), BioGPT (Luo et al. 2022) and XGLM (Lin et al. 2021): GPT-2's layers, of
// which OPT 350M has the norms behind attention and the MLP.
#include "families/family.h"

namespace weft::families::opt {

constexpr int64_t kMostRows = 1 << 20, kMostTable = 1 << 26;

Result<bool> OptNormsBehind(const Config& config) {
    WEFT_ASSIGN(const bool before, config.BoolOr({"do_layer_norm_before"}, true));
    return !before;
}

Result<Config> OptAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("layer_norm_elementwise_affine", true));
    WEFT_TRY(config.MustBe("_remove_final_layer_norm", false));
    return UsualKeys(config,
                     {{"intermediate_size", "ffn_dim"}, {"hidden_act", "activation_function"}});
}

Result<Config> XglmAdjust(const Config& config) {
    return UsualKeys(config, {{"hidden_size", "d_model"},
                              {"num_hidden_layers", "num_layers"},
                              {"num_attention_heads", "attention_heads"},
                              {"intermediate_size", "ffn_dim"},
                              {"hidden_act", "activation_function"}});
}

Result<EndScales> RootScale(const Config& config) {
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const bool scales, config.BoolOr({"scale_embedding"}, true));
    return EndScales{scales ? std::sqrt(static_cast<double>(hidden)) : 1.0, 1.0};
}

// The first two rows of the table are of no position. An embedding of fewer columns than the
// residual stream has projections.
Status OptLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    if (layer != 0) return {};
    for (const auto& [gguf, module] : {std::pair{"token_embd_proj.weight", "project_in"},
                                       std::pair{"output_proj.weight", "project_out"}}) {
        WEFT_ASSIGN(MatrixPtr matrix, assembly.Linear(Assembly::Beside(prefix, "layers.", module)));
        if (matrix != nullptr) assembly.Add(gguf, std::move(matrix));
    }
    return assembly.AddPositions(Assembly::Beside(prefix, "layers.", "embed_positions.weight"), 2);
}

// The vector of a position has the sines of half of the columns, then their cosines.
Status XglmLayer(Assembly& assembly, int64_t layer, const std::string&) {
    if (layer != 0) return {};
    WEFT_ASSIGN(const int64_t hidden, assembly.config().NeedInt({"hidden_size"}, 4, kMostColumns));
    WEFT_ASSIGN(const int64_t count,
                assembly.config().NeedInt({"max_position_embeddings"}, 1, kMostRows));
    if (count > kMostTable / hidden) {
        return assembly.config().Corrupt("max_position_embeddings",
                                         fmt::format("at most {}", kMostTable / hidden));
    }
    const int64_t half = hidden / 2;
    std::vector<float> table(static_cast<size_t>(count * hidden), 0.0f);
    for (int64_t position = 0; position < count; ++position) {
        for (int64_t i = 0; i < half; ++i) {
            const double step = std::log(10000.0) / static_cast<double>(half - 1);
            const double angle =
                static_cast<double>(position + 2) * std::exp(-step * static_cast<double>(i));
            float* const row = table.data() + position * hidden;
            row[i] = static_cast<float>(std::sin(angle));
            row[half + i] = static_cast<float>(std::cos(angle));
        }
    }
    assembly.Add("position_embd.weight", Reshaped(FromFloats(std::move(table)), hidden));
    return {};
}

constexpr Rule kOptBehindRules[] = {
    {"attn_output_norm", "self_attn_layer_norm", Form::kNorm},
    {"layer_output_norm", "final_layer_norm", Form::kNorm},
};
constexpr Rule kOptBeforeRules[] = {
    {"attn_norm", "self_attn_layer_norm", Form::kNorm},
    {"ffn_norm", "final_layer_norm", Form::kNorm},
};
constexpr Rule kOptRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.out_proj", Form::kLinear},
    {"ffn_up", "fc1", Form::kLinear},
    {"ffn_down", "fc2", Form::kLinear},
};
constexpr std::string_view kEveryBias =
    "position_embd.weight output.weight?scale_embedding "
    "attn_norm.bias ffn_norm.bias output_norm.bias attn_q.bias attn_k.bias attn_v.bias "
    "attn_output.bias ffn_up.bias ffn_down.bias";

// OPT 350M has its norms behind attention and the MLP, and no norm after the last layer.
constexpr Family Opt(bool before) {
    Family family = {.model_type = "opt",
                     .architecture = "gpt2",
                     .rules = {kOptBeforeRules, kOptRules},
                     .meta = WriteUngated,
                     .layer = OptLayer,
                     .adjust = OptAdjust,
                     .defaults = R"({"max_position_embeddings": 2048, "activation_function": "relu",
                     "layer_norm_eps": 1e-5, "enable_bias": true, "tie_word_embeddings": true})",
                     .final_norm = "final_layer_norm",
                     .path = "model.decoder",
                     .layer_norm = "layer_norm_eps",
                     .more_tensors =
                         "position_embd.weight attn_norm.bias ffn_norm.bias output_norm.bias "
                         "attn_q.bias?enable_bias "
                         "attn_k.bias?enable_bias attn_v.bias?enable_bias "
                         "attn_output.bias?enable_bias ffn_up.bias?enable_bias "
                         "ffn_down.bias?enable_bias"};
    if (before) return family;
    family.rules[0] = kOptBehindRules;
    family.fits = OptNormsBehind;
    family.final_norm = "";
    family.more_tensors =
        "position_embd.weight attn_output_norm.bias layer_output_norm.bias "
        "attn_q.bias?enable_bias attn_k.bias?enable_bias attn_v.bias?enable_bias "
        "attn_output.bias?enable_bias ffn_up.bias?enable_bias ffn_down.bias?enable_bias";
    return family;
}

constexpr Family kFolders[] = {
    Opt(false),
    Opt(true),
    {.model_type = "biogpt",
     .architecture = "gpt2",
     .rules = {kOptBeforeRules, kOptRules},
     .meta = WriteUngated,
     .layer = OptLayer,
     .adjust = PlainKeys,
     .defaults = R"({"max_position_embeddings": 1024, "hidden_act": "gelu",
                     "biogpt_norm_eps": 1e-5, "scale_embedding": true,
                     "tie_word_embeddings": true})",
     .final_norm = "layer_norm",
     .path = "biogpt",
     .output = "output_projection",
     .ends = RootScale,
     .layer_norm = "biogpt_norm_eps",
     .more_tensors = kEveryBias},
    {.model_type = "xglm",
     .architecture = "gpt2",
     .rules = {kOptBeforeRules, kOptRules},
     .meta = WriteUngated,
     .layer = XglmLayer,
     .adjust = XglmAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu",
                     "layer_norm_eps": 1e-5, "scale_embedding": true,
                     "tie_word_embeddings": true})",
     .final_norm = "layer_norm",
     .ends = RootScale,
     .layer_norm = "layer_norm_eps",
     .more_tensors = kEveryBias},
};

extern const Tables kTables = {kFolders};

}  // namespace weft::families::opt
