// GPT (Radford et al. 2018), GPT-2 (2019), StarCoder 1 (Li et al. 2023) and GPT-Neo (Black et al.
// 2021): LayerNorms with biases, a vector per position, and MLPs without a gate. In GPT, norms
// follow attention and the MLP, as in BERT; GPT-Neo has windows.
#include "families/family.h"

namespace weft::families::gpt2 {

Result<Config> Gpt2Adjust(const Config& config) {
    WEFT_TRY(config.MustBe("scale_attn_weights", true));
    WEFT_TRY(config.MustBe("scale_attn_by_inverse_layer_idx", false));
    return UsualKeys(config, GptNames());
}

// "gelu" is the tanh form in this model alone.
Result<Config> GptAdjust(const Config& config) {
    WEFT_ASSIGN(const std::string act, config.StringOr({"afn"}, "gelu"));
    const Config named = config.With(Json{{"hidden_act", act == "gelu" ? "gelu_new" : act}});
    return UsualKeys(named, {{"hidden_size", "n_embd"},
                             {"num_hidden_layers", "n_layer"},
                             {"num_attention_heads", "n_head"},
                             {"max_position_embeddings", "n_positions"}});
}

Result<Config> GptBigcodeAdjust(const Config& config) {
    WEFT_ASSIGN(const bool one, config.BoolOr({"multi_query"}, true));
    Json kv = nullptr;  // as many as query heads
    if (one) kv = 1;
    return Gpt2Adjust(config.With(Json{{"num_key_value_heads", kv}}));
}

Result<Config> GptNeoAdjust(const Config& config) {
    return UsualKeys(config, {{"num_hidden_layers", "num_layers"},
                              {"num_attention_heads", "num_heads"},
                              {"hidden_act", "activation_function"},
                              {"sliding_window", "window_size"}});
}

// Scores have no factor. attention_layers has the kind of each layer; attention_types has runs of
// kinds that repeat: [[["global", "local"], 12]].
Status GptNeoMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteUngated(config, meta));
    meta.F32("attention.scale", 1);
    std::vector<bool> local;
    const Json& json = config.json();
    const auto add = [&](const Json& kind) {
        local.push_back(kind == "local");
        return kind == "local" || kind == "global";
    };
    bool good = true;
    if (config.Has("attention_layers") && json["attention_layers"].is_array()) {
        for (const Json& kind : json["attention_layers"]) good = add(kind) && good;
    } else if (config.Has("attention_types") && json["attention_types"].is_array()) {
        for (const Json& run : json["attention_types"]) {
            good = good && run.is_array() && run.size() == 2 && run[0].is_array() &&
                   !run[0].empty() && run[1].is_number_integer();
            for (int64_t i = 0; good && i < run[1].get<int64_t>() && local.size() <= 4096; ++i) {
                for (const Json& kind : run[0]) good = add(kind) && good;
            }
        }
    }
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    if (!good || local.size() != static_cast<size_t>(layers)) {
        return config.Corrupt("attention_layers", "'global' or 'local' for each layer");
    }
    if (std::ranges::find(local, true) == local.end()) return {};
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, 1 << 20));
    meta.Int("attention.sliding_window", window);
    meta.Bools("attention.sliding_window_pattern", local);
    return {};
}

Status Gpt1Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return layer == 0
               ? assembly.AddPositions(Assembly::Beside(prefix, "h.", "positions_embed.weight"), 0)
               : Status();
}

Status Gpt2Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return layer == 0 ? assembly.AddPositions(Assembly::Beside(prefix, "h.", "wpe.weight"), 0)
                      : Status();
}

constexpr Rule kGptNormRules[] = {
    {"attn_norm", "ln_1", Form::kNorm},
    {"ffn_norm", "ln_2", Form::kNorm},
};
constexpr Rule kGpt1NormRules[] = {
    {"attn_output_norm", "ln_1", Form::kNorm},
    {"layer_output_norm", "ln_2", Form::kNorm},
};
constexpr Rule kGptTurnedRules[] = {
    {"attn_qkv", "attn.c_attn", Form::kTurned},
    {"attn_output", "attn.c_proj", Form::kTurned},
    {"ffn_up", "mlp.c_fc", Form::kTurned},
    {"ffn_down", "mlp.c_proj", Form::kTurned},
};
constexpr Rule kGptRules[] = {
    {"attn_output", "attn.c_proj", Form::kLinear},
    {"ffn_up", "mlp.c_fc", Form::kLinear},
    {"ffn_down", "mlp.c_proj", Form::kLinear},
};
constexpr Rule kGptNeoRules[] = {
    {"attn_q", "attn.attention.q_proj", Form::kQuery},
    {"attn_k", "attn.attention.k_proj", Form::kKey},
    {"attn_v", "attn.attention.v_proj", Form::kLinear},
    {"attn_output", "attn.attention.out_proj", Form::kLinear},
    {"ffn_up", "mlp.c_fc", Form::kLinear},
    {"ffn_down", "mlp.c_proj", Form::kLinear},
};
constexpr std::string_view kSplitEveryBias =
    "position_embd.weight "
    "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias output_norm.bias "
    "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_up.bias ffn_down.bias";

constexpr Family kGpt2 = {
    .model_type = "gpt2",
    .also = "gpt-sw3",
    .architecture = "gpt2",
    .rules = {kGptNormRules, kGptTurnedRules},
    .meta = WriteUngated,
    .layer = Gpt2Layer,
    .adjust = Gpt2Adjust,
    .defaults = R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
                    "tie_word_embeddings": true})",
    .embedding = "wte",
    .final_norm = "ln_f",
    .layers = "h",
    .path = "transformer",
    .layer_norm = "layer_norm_epsilon",
    .more_tensors =
        "attn_qkv.bias attn_norm.bias ffn_norm.bias output_norm.bias "
        "attn_output.bias ffn_up.bias ffn_down.bias position_embd.weight"};
constexpr Family kFolders[] = {
    kGpt2,
    {.model_type = "openai-gpt",
     .architecture = "gpt2",
     .rules = {kGpt1NormRules, kGptTurnedRules},
     .meta = WriteUngated,
     .layer = Gpt1Layer,
     .adjust = GptAdjust,
     .defaults = R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512,
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "tokens_embed",
     .final_norm = "",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "attn_qkv.bias attn_output_norm.bias layer_output_norm.bias "
                     "attn_output.bias ffn_up.bias ffn_down.bias position_embd.weight"},
    Like(kGpt2,
         [](Family& family) {
             family.model_type = "gpt_bigcode";
             family.rules = {kGptNormRules, kGptRules};
             family.qkv = {"attn.c_attn"};
             family.adjust = GptBigcodeAdjust;
             family.defaults = R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                     "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5,
                     "tie_word_embeddings": true})";
             family.more_tensors = kSplitEveryBias;
             family.also = "";
         }),
    {.model_type = "gpt_neo",
     .architecture = "gpt2",
     .rules = {kGptNormRules, kGptNeoRules},
     .meta = GptNeoMeta,
     .layer = Gpt2Layer,
     .adjust = GptNeoAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "activation_function": "gelu_new",
                     "layer_norm_epsilon": 1e-5, "window_size": 256, "tie_word_embeddings": true,
                     "attention_types": [[["global", "local"], 12]]})",
     .embedding = "wte",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "position_embd.weight attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias ffn_up.bias "
                     "ffn_down.bias"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"gpt2", "GPT, GPT-2, GPT-Neo, StarCoder 1, OPT, BioGPT, XGLM",
                "LayerNorm with biases, learned positions, MLPs of GELU without a gate, windows; "
                "norms behind attention and MLP",
                "gpt2, gptNeo, gptBigcode, opt, optBehind, openaiGpt, biogpt, xglm"},
     .build = GptLayers,
     .traits = {.norms = Norms::kLayer, .ungated = Ungated::kGeluTanh, .rotates = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::gpt2
