// GPT-NeoX (Black et al. 2022), Pythia: GPT's layers with partial RoPE, and attention beside the
// MLP.
#include "families/family.h"

namespace weft::families::gpt_neox {

Result<Config> NeoxAdjust(const Config& config) {
    return UsualKeys(Renamed(config, {{"partial_rotary_factor", "rotary_pct"},
                                      {"rope_theta", "rotary_emb_base"}}),
                     {});
}

// The MLP has a multiple of the columns of the residual stream.
Result<Config> NeoxJapaneseAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t times, config.IntOr({"intermediate_multiple_size"}, 1, 64, 4));
    return NeoxAdjust(
        config.With(Json{{"intermediate_size", times * hidden}, {"use_parallel_residual", false}}));
}

Status NeoxMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool beside, config.BoolOr({"use_parallel_residual"}, true));
    meta.Bool("use_parallel_residual", beside);
    return WriteUngated(config, meta);
}

// Only the last layer has this bias.
Status NeoxJapaneseLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t hidden, assembly.config().NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(prefix + "attention.dense_bias"));
    if (bias == nullptr) bias = FromFloats(std::vector<float>(static_cast<size_t>(hidden)));
    assembly.AddVector(Assembly::Block(layer, "attn_output.bias"), std::move(bias));
    return {};
}

constexpr Rule kNeoxRules[] = {
    {"attn_output", "attention.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};

constexpr Family kNeox = {
    .model_type = "gpt_neox",
    .architecture = "gptneox",
    .rules = {kPreNormRules, kNeoxRules},
    .qkv = {"attention.query_key_value"},
    .meta = NeoxMeta,
    .adjust = NeoxAdjust,
    .defaults = R"({"max_position_embeddings": 2048, "hidden_act": "gelu",
                    "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
                    "attention_bias": true})",
    .rope = {.partial = true},
    .embedding = "embed_in",
    .final_norm = "final_layer_norm",
    .path = "gpt_neox",
    .layer_norm = "layer_norm_eps",
    .more_tensors =
        "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
        "output_norm.bias attn_output.bias?attention_bias ffn_up.bias ffn_down.bias"};
constexpr Family kFolders[] = {
    kNeox,
    Like(kNeox,
         [](Family& family) {
             family.model_type = "gpt_neox_japanese";
             family.layer = NeoxJapaneseLayer;
             family.adjust = NeoxJapaneseAdjust;
             family.defaults = R"({"max_position_embeddings": 2048, "hidden_act": "gelu",
                                   "layer_norm_eps": 1e-5, "tie_word_embeddings": true})";
             family.path = "gpt_neox_japanese";
             family.output = "embed_out";
             family.more_tensors =
                 "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
                 "output_norm.bias attn_output.bias";
         }),
};
constexpr Architecture kArchitectures[] = {
    {.family = {"gptneox", "GPT-NeoX, Pythia",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate",
                "gptNeox, gptNeoxSerial, gptNeoxJapanese"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGelu}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gpt_neox
