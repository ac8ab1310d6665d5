// GPT-J (Wang and Komatsuzaki 2021) and CodeGen (Nijkamp et al. 2022): GPT's layers with RoPE over
// neighboring columns, and attention beside the MLP.
#include "families/family.h"

namespace weft::families::gptj {

// RoPE rotates the first `rotary_dim` columns of a head.
Result<Config> GptJAdjust(const Config& config) {
    WEFT_ASSIGN(const Config usual, UsualKeys(config, GptNames()));
    WEFT_ASSIGN(const int64_t dim, HeadDim(usual));
    WEFT_ASSIGN(const int64_t rotary, usual.IntOr({"rotary_dim"}, 2, dim, dim));
    return usual.With(
        Json{{"partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(dim)}});
}

constexpr Rule kGptJRules[] = {
    {"attn_norm", "ln_1", Form::kNorm},
    {"attn_output", "attn.out_proj", Form::kLinear},
    {"ffn_up", "mlp.fc_in", Form::kLinear},
    {"ffn_down", "mlp.fc_out", Form::kLinear},
};
constexpr Rule kGptJHeadRules[] = {
    {"attn_q", "attn.q_proj", Form::kQuery},
    {"attn_k", "attn.k_proj", Form::kKey},
    {"attn_v", "attn.v_proj", Form::kLinear},
};

constexpr Family kGptJ = {
    .model_type = "gptj",
    .architecture = "gptj",
    .rules = {kGptJRules, kGptJHeadRules},
    .meta = WriteUngated,
    .adjust = GptJAdjust,
    .defaults = R"({"n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048,
                    "rotary_dim": 64, "activation_function": "gelu_new",
                    "layer_norm_epsilon": 1e-5})",
    .rope = {.partial = true},
    .embedding = "wte",
    .final_norm = "ln_f",
    .layers = "h",
    .path = "transformer",
    .layer_norm = "layer_norm_epsilon",
    .more_tensors = "attn_norm.bias output_norm.bias ffn_up.bias ffn_down.bias output.bias"};
constexpr Family kFolders[] = {
    kGptJ,
    Like(kGptJ,
         [](Family& family) {
             family.model_type = "codegen";
             family.rules = {kGptJRules};
             family.qkv = {"attn.qkv_proj", QkvOrder::kFourGroups};
             family.more_tensors =
                 "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias output_norm.bias "
                 "ffn_up.bias ffn_down.bias output.bias";
         }),
};

ValueId BuildGptJ(Builder& b, ValueId x) {
    return GptLayers(b, x, true);
}

constexpr Architecture kArchitectures[] = {
    {.family = {"gptj", "GPT-J, CodeGen",
                "LayerNorm with biases, partial RoPE, attention beside the MLP, MLPs of GELU "
                "without a gate",
                "gptj, codegen"},
     .build = BuildGptJ,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gptj
