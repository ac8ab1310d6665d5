// Llama's block under other names, with other factors, or with layers that lack attention or the
// MLP.
#include <algorithm>
#include <cmath>

#include "model_files/hf/assembly.h"
#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

// ---- InternLM 2 ---------------------------------------------------------------------------------

constexpr Rule kInternLm2Rules[] = {
    {"attn_norm", "attention_norm", Form::kNorm},   {"ffn_norm", "ffn_norm", Form::kNorm},
    {"attn_output", "attention.wo", Form::kLinear}, {"ffn_gate", "feed_forward.w1", Form::kLinear},
    {"ffn_up", "feed_forward.w3", Form::kLinear},   {"ffn_down", "feed_forward.w2", Form::kLinear},
};

// ---- Arcee, Apertus -----------------------------------------------------------------------------

Status ArceeMeta(const Config& config, MetaWriter& meta) {
    return WriteCommon(config, meta, "relu2");
}

// The parameters of xIELU, which a folder has as tensors, and their values before training.
struct XieluNumber {
    const char *key, *tensor;
    double usual;
};
constexpr XieluNumber kXieluNumbers[] = {{"xielu.alpha_p", "alpha_p", 0.20338},
                                         {"xielu.alpha_n", "alpha_n", -1.05023},
                                         {"xielu.beta", "beta", 0.5},
                                         {"xielu.eps", "eps", -1e-6}};

Status ApertusMeta(const Config& config, MetaWriter& meta) {
    for (const XieluNumber& one : kXieluNumbers) meta.OfTensors(one.key, one.usual);
    return WriteCommon(config, meta, "xielu");
}

Status ApertusLayer(Assembly& assembly, int64_t, const std::string& prefix) {
    for (const XieluNumber& one : kXieluNumbers) {
        WEFT_TRY(assembly.AddNumber(one.key, prefix + "mlp.act_fn." + one.tensor));
    }
    return {};
}

constexpr Rule kApertusRules[] = {
    {"attn_norm", "attention_layernorm", Form::kNorm},
    {"ffn_norm", "feedforward_layernorm", Form::kNorm},
};

// ---- OLMo 1 -------------------------------------------------------------------------------------

Status OlmoMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    return WriteClamp(config, meta);
}

// ---- nanochat -----------------------------------------------------------------------------------

Status NanoMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta, "relu2"));
    WEFT_ASSIGN(const double cap, config.F64Or({"final_logit_softcapping"}, 0.0));
    if (cap != 0) meta.F32("final_logit_softcapping", cap);
    return {};
}

constexpr Rule kNanoRules[] = {
    {"ffn_up", "mlp.fc1", Form::kLinear},
    {"ffn_down", "mlp.fc2", Form::kLinear},
};

// ---- MiniCPM ------------------------------------------------------------------------------------

// Renames its factors to Granite's keys.
Result<Config> MiniCpmAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t experts, config.IntOr({"num_experts"}, 0, 1 << 16, 0));
    if (experts != 0) return config.Corrupt("num_experts", "0: experts are not supported");
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostLayers));
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, kMostHeads));
    WEFT_ASSIGN(const double embedding, config.NeedF64({"scale_emb"}));
    WEFT_ASSIGN(const double depth, config.NeedF64({"scale_depth"}));
    WEFT_ASSIGN(const int64_t base, config.NeedInt({"dim_model_base"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t dim, config.IntOr({"head_dim"}, 1, 1024, hidden / heads));
    const Json over = {{"embedding_multiplier", embedding},
                       {"residual_multiplier", depth / std::sqrt(static_cast<double>(layers))},
                       {"logits_scaling", static_cast<double>(hidden) / static_cast<double>(base)},
                       {"attention_multiplier", 1 / std::sqrt(static_cast<double>(dim))}};
    return config.With(over);
}

// ---- Llama-Nemotron -----------------------------------------------------------------------------

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

constexpr Family kLlamaLikeFamilies[] = {
    {.model_type = "apertus",
     .architecture = "apertus",
     .rules = {kApertusRules, kAttentionRules, kQkNormRules, kUngatedMlpRules},
     .meta = ApertusMeta,
     .layer = ApertusLayer,
     .defaults = R"({"max_position_embeddings": 65536, "rms_norm_eps": 1e-5,
                     "rope_theta": 12000000.0, "rope_parameters": {
                         "rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
                         "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0}})",
     .more_tensors = "attn_output.bias?attention_bias"},
    {.model_type = "arcee",
     .architecture = "arcee",
     .rules = {kPreNormRules, kAttentionRules, kUngatedMlpRules},
     .meta = ArceeMeta,
     .pairs = true,
     .defaults = R"({"rms_norm_eps": 1e-5})",
     .more_tensors = "attn_output.bias?attention_bias"},
    {.model_type = "nanochat",
     .architecture = "nanochat",
     .rules = {kAttentionRules, kNanoRules},
     .meta = NanoMeta,
     .defaults = R"({"max_position_embeddings": 2048, "final_logit_softcapping": 15.0})",
     .plain_norms = true,
     .caps = "final_logit_softcapping"},
    {.model_type = "olmo",
     .architecture = "olmo",
     .rules = {kAttentionRules, kMlpRules},
     .meta = OlmoMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": null,
                     "layer_norm_eps": 1e-5})",
     .plain_norms = true,
     .layer_norm = "layer_norm_eps",
     .more_tensors = "attn_output.bias?attention_bias"},
    {.model_type = "internlm2",
     .architecture = "internlm2",
     .rules = {kInternLm2Rules},
     .qkv = {"attention.wqkv"},
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048})",
     .embedding = "tok_embeddings",
     .output = "output"},
    {.model_type = "minicpm",
     .architecture = "minicpm",
     .meta = WriteScales,
     .pairs = true,
     .adjust = MiniCpmAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "scale_emb": 1, "scale_depth": 1,
                     "dim_model_base": 1, "tie_word_embeddings": true})"},
    {.model_type = "nemotron-nas",
     .architecture = "deci",
     .rules = {kDeciRules, kSomeAttentionRules},
     .layer = DeciLayer,
     .pairs = true,
     .adjust = DeciAdjust,
     .defaults = R"({"max_position_embeddings": 2048})"},
};

}  // namespace

extern const std::span<const Family> kLlamaLikeModels = kLlamaLikeFamilies;

}  // namespace weft::model_files::hf
