// Models of 2018 to 2023, with LayerNorms that have biases and MLPs without a gate: GPT, GPT-2,
// StarCoder 1, GPT-Neo, OPT, BioGPT and XGLM (a vector per position); GPT-NeoX, GPT-J, CodeGen,
// Falcon and Phi-1 to 2 (RoPE); BLOOM, MPT and Falcon-RW (ALiBi).
#include <algorithm>
#include <cmath>

#include "model_files/hf/assembly.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostRows = 1 << 20, kMostTable = 1 << 26;

// ---- Keys ---------------------------------------------------------------------------------------

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

// RoPE rotates the first `rotary_dim` columns of a head.
Result<Config> GptJAdjust(const Config& config) {
    WEFT_ASSIGN(const Config usual, UsualKeys(config, GptNames()));
    WEFT_ASSIGN(const int64_t dim, HeadDim(usual));
    WEFT_ASSIGN(const int64_t rotary, usual.IntOr({"rotary_dim"}, 2, dim, dim));
    return usual.With(
        Json{{"partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(dim)}});
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
    WEFT_ASSIGN(const int64_t window, config.NeedInt({"sliding_window"}, 1, kMostRows));
    meta.Int("attention.sliding_window", window);
    meta.Bools("attention.sliding_window_pattern", local);
    return {};
}

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

// Keys and values: one head, as many as query heads, or (40B and later) num_kv_heads.
Result<Config> FalconDenseAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("apply_residual_connection_post_layernorm", false));
    Json over = {{"num_key_value_heads", nullptr}};
    const Config renamed = Renamed(config, {{"num_hidden_layers", "n_layer"},
                                            {"num_attention_heads", "n_head"},
                                            {"intermediate_size", "ffn_hidden_size"},
                                            {"hidden_act", "activation"}});
    WEFT_ASSIGN(const bool wide, config.BoolOr({"new_decoder_architecture"}, false));
    WEFT_ASSIGN(const bool one, config.BoolOr({"multi_query"}, true));
    WEFT_ASSIGN(const bool parallel, config.BoolOr({"parallel_attn"}, true));
    WEFT_ASSIGN(const int64_t norms, config.IntOr({"num_ln_in_parallel_attn"}, 1, 2, 2));
    over["wide"] = wide && norms == 2;
    over["serial"] = !wide && !parallel;
    if (wide) {
        WEFT_ASSIGN(const int64_t heads, renamed.NeedInt({"num_attention_heads"}, 1, 4096));
        WEFT_ASSIGN(const int64_t kv,
                    renamed.IntOr({"num_kv_heads", "n_head_kv"}, 1, heads, heads));
        over["num_key_value_heads"] = kv;
    } else if (one) {
        over["num_key_value_heads"] = 1;
    }
    return UsualKeys(renamed.With(over), {});
}

// (transformers 5.24 rounds the bias of ALiBi to bfloat16; Weft does not.)
Status FalconDenseMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const bool alibi, config.BoolOr({"alibi"}, false));
    if (alibi) meta.F32("attention.max_alibi_bias", 8);
    return WriteUngated(config, meta);
}

Result<Config> BloomAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("apply_residual_connection_post_layernorm", false));
    return UsualKeys(config, {{"hidden_size", "n_embed"},
                              {"num_hidden_layers", "n_layer"},
                              {"num_attention_heads", "n_head"},
                              {"max_position_embeddings", "seq_length"}});
}

// transformers ignores what these keys would change.
Result<Config> MptAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("no_bias", true));
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_TRY(attention.MustBe("attn_type", "multihead_attention"));
    for (const char* key : {"qk_ln", "prefix_lm"}) WEFT_TRY(attention.MustBe(key, false));
    WEFT_TRY(attention.MustBe("alibi", true));
    WEFT_ASSIGN(const int64_t times, config.IntOr({"expansion_ratio"}, 1, 64, 4));
    if (times != 4) return config.Corrupt("expansion_ratio", "4: others are not supported");
    if (config.Has("logit_scale")) {
        return config.Corrupt("logit_scale", "null: it is not supported");
    }
    return UsualKeys(config, {{"hidden_size", "d_model"},
                              {"num_hidden_layers", "n_layers"},
                              {"num_attention_heads", "n_heads"},
                              {"max_position_embeddings", "max_seq_len"}});
}

Status MptMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN(const Config attention, config.Sub({"attn_config"}));
    WEFT_ASSIGN(const double bias, attention.F64Or({"alibi_bias_max"}, 8));
    WEFT_ASSIGN(const double scale, attention.F64Or({"softmax_scale"}, 0));
    meta.F32("attention.max_alibi_bias", bias);
    WEFT_TRY(WriteClamp(attention, meta));
    if (scale != 0) meta.F32("attention.scale", scale);
    return WriteUngated(config, meta);
}

// ---- Tensors ------------------------------------------------------------------------------------

Status Gpt1Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return layer == 0
               ? assembly.AddPositions(Assembly::Beside(prefix, "h.", "positions_embed.weight"), 0)
               : Status();
}

Status Gpt2Layer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return layer == 0 ? assembly.AddPositions(Assembly::Beside(prefix, "h.", "wpe.weight"), 0)
                      : Status();
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

Status PhiLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    return assembly.AddHeadNorms(layer, prefix + "self_attn.");
}

// Only the last layer has this bias.
Status NeoxJapaneseLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t hidden, assembly.config().NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(MatrixPtr bias, assembly.Column(prefix + "attention.dense_bias"));
    if (bias == nullptr) bias = FromFloats(std::vector<float>(static_cast<size_t>(hidden)));
    assembly.AddVector(Assembly::Block(layer, "attn_output.bias"), std::move(bias));
    return {};
}

Status BloomLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    for (const char* part : {".weight", ".bias"}) {
        if (layer != 0) break;
        const std::string name =
            Assembly::Beside(prefix, "h.", std::string("word_embeddings_layernorm") + part);
        WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(name), name, 0));
        assembly.AddVector(std::string("token_embd_norm") + part, std::move(column));
    }
    return {};
}

constexpr Rule kGptNormRules[] = {
    {"attn_norm", "ln_1", Form::kNorm},
    {"ffn_norm", "ln_2", Form::kNorm},
};
constexpr Rule kGpt1NormRules[] = {
    {"attn_output_norm", "ln_1", Form::kNorm},
    {"layer_output_norm", "ln_2", Form::kNorm},
};
constexpr Rule kOptBehindRules[] = {
    {"attn_output_norm", "self_attn_layer_norm", Form::kNorm},
    {"layer_output_norm", "final_layer_norm", Form::kNorm},
};
constexpr Rule kOptBeforeRules[] = {
    {"attn_norm", "self_attn_layer_norm", Form::kNorm},
    {"ffn_norm", "final_layer_norm", Form::kNorm},
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
constexpr Rule kOptRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.out_proj", Form::kLinear},
    {"ffn_up", "fc1", Form::kLinear},
    {"ffn_down", "fc2", Form::kLinear},
};
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
constexpr Rule kNeoxRules[] = {
    {"attn_output", "attention.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};
// Models with one norm for attention and the MLP, with one for each, or with one before each.
constexpr Rule kFalconNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm, false},
    {"attn_norm", "ln_mlp", Form::kNorm, false},
    {"attn_norm_2", "ln_attn", Form::kNorm, false},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm, false},
};
constexpr Rule kFalconDenseRules[] = {
    {"attn_output", "self_attention.dense", Form::kLinear},
    {"ffn_up", "mlp.dense_h_to_4h", Form::kLinear},
    {"ffn_down", "mlp.dense_4h_to_h", Form::kLinear},
};
constexpr Rule kMptRules[] = {
    {"attn_norm", "norm_1", Form::kNorm},
    {"ffn_norm", "norm_2", Form::kNorm},
    {"attn_output", "attn.out_proj", Form::kLinear},
    {"ffn_up", "ffn.up_proj", Form::kLinear},
    {"ffn_down", "ffn.down_proj", Form::kLinear},
};
constexpr Rule kPhiRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.dense", Form::kLinear},
    {"ffn_up", "mlp.fc1", Form::kLinear},
    {"ffn_down", "mlp.fc2", Form::kLinear},
};

constexpr std::string_view kEveryBias =
    "position_embd.weight output.weight?scale_embedding "
    "attn_norm.bias ffn_norm.bias output_norm.bias attn_q.bias attn_k.bias attn_v.bias "
    "attn_output.bias ffn_up.bias ffn_down.bias";
constexpr std::string_view kSplitEveryBias =
    "position_embd.weight "
    "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias output_norm.bias "
    "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_up.bias ffn_down.bias";

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

constexpr Family kGptFamilies[] = {
    {.model_type = "gpt2",
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
     .more_tensors = "attn_qkv.bias attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias ffn_up.bias ffn_down.bias position_embd.weight"},
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
    {.model_type = "gpt_bigcode",
     .architecture = "gpt2",
     .rules = {kGptNormRules, kGptRules},
     .qkv = {"attn.c_attn"},
     .meta = WriteUngated,
     .layer = Gpt2Layer,
     .adjust = GptBigcodeAdjust,
     .defaults = R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                     "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-5,
                     "tie_word_embeddings": true})",
     .embedding = "wte",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = kSplitEveryBias},
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
    {.model_type = "gptj",
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
     .more_tensors = "attn_norm.bias output_norm.bias ffn_up.bias ffn_down.bias output.bias"},
    {.model_type = "codegen",
     .architecture = "gptj",
     .rules = {kGptJRules},
     .qkv = {"attn.qkv_proj", QkvOrder::kFourGroups},
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
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias output_norm.bias "
                     "ffn_up.bias ffn_down.bias output.bias"},
    {.model_type = "gpt_neox",
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
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
                     "output_norm.bias attn_output.bias?attention_bias ffn_up.bias ffn_down.bias"},
    {.model_type = "gpt_neox_japanese",
     .architecture = "gptneox",
     .rules = {kPreNormRules, kNeoxRules},
     .qkv = {"attention.query_key_value"},
     .meta = NeoxMeta,
     .layer = NeoxJapaneseLayer,
     .adjust = NeoxJapaneseAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "hidden_act": "gelu",
                     "layer_norm_eps": 1e-5, "tie_word_embeddings": true})",
     .rope = {.partial = true},
     .embedding = "embed_in",
     .final_norm = "final_layer_norm",
     .path = "gpt_neox_japanese",
     .output = "embed_out",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.bias ffn_norm.bias "
                     "output_norm.bias attn_output.bias"},
    {.model_type = "falcon",
     .also = "RefinedWeb RefinedWebModel",
     .architecture = "falcon",
     .rules = {kFalconNormRules, kFalconDenseRules},
     .qkv = {"self_attention.query_key_value"},
     .meta = FalconDenseMeta,
     .adjust = FalconDenseAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "activation": "gelu",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "word_embeddings",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight attn_norm.weight attn_norm.bias "
                     "attn_norm_2.weight?wide attn_norm_2.bias?wide ffn_norm.weight?serial "
                     "ffn_norm.bias?serial output_norm.bias "
                     "attn_q.bias?bias attn_k.bias?bias attn_v.bias?bias attn_output.bias?bias "
                     "ffn_up.bias?bias ffn_down.bias?bias"},
    {.model_type = "bloom",
     .architecture = "bloom",
     .rules = {kPreNormRules, kFalconDenseRules},
     .qkv = {"self_attention.query_key_value"},
     .meta = WriteUngated,
     .layer = BloomLayer,
     .adjust = BloomAdjust,
     .defaults = R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
                     "max_position_embeddings": 2048, "hidden_act": "gelu_pytorch_tanh",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "word_embeddings",
     .final_norm = "ln_f",
     .layers = "h",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "token_embd_norm.weight token_embd_norm.bias attn_norm.bias "
                     "ffn_norm.bias output_norm.bias "
                     "attn_q.weight attn_k.weight attn_v.weight attn_q.bias attn_k.bias "
                     "attn_v.bias attn_output.bias ffn_up.bias ffn_down.bias"},
    {.model_type = "mpt",
     .architecture = "mpt",
     .rules = {kMptRules},
     .qkv = {"attn.Wqkv", QkvOrder::kWhole},
     .meta = MptMeta,
     .adjust = MptAdjust,
     .defaults = R"({"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                     "max_position_embeddings": 2048, "hidden_act": "gelu",
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true})",
     .embedding = "wte",
     .final_norm = "norm_f",
     .layers = "blocks",
     .path = "transformer",
     .layer_norm = "layer_norm_epsilon",
     .more_tensors = "attn_q.weight attn_k.weight attn_v.weight"},
    {.model_type = "phi",
     .architecture = "phi2",
     .rules = {kPhiRules},
     .meta = WriteUngated,
     .layer = PhiLayer,
     .adjust = PlainKeys,
     .defaults = R"({"max_position_embeddings": 2048, "hidden_act": "gelu_new",
                     "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .final_norm = "final_layernorm",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_norm.bias output_norm.bias attn_q.bias attn_k.bias attn_v.bias "
                     "attn_output.bias ffn_up.bias ffn_down.bias output.bias "
                     "attn_q_norm.weight?qk_layernorm attn_q_norm.bias?qk_layernorm "
                     "attn_k_norm.weight?qk_layernorm attn_k_norm.bias?qk_layernorm"},
    {.model_type = "jais2",
     .architecture = "jais2",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = WriteUngated,
     .adjust = PlainKeys,
     .defaults = R"({"max_position_embeddings": 8192, "hidden_act": "relu2",
                     "layer_norm_eps": 1e-5, "attention_bias": true, "mlp_bias": true})",
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_norm.bias ffn_norm.bias output_norm.bias "
                     "attn_output.bias?attention_bias"},
};

}  // namespace

extern const std::span<const Family> kGptModels = kGptFamilies;

}  // namespace weft::model_files::hf
