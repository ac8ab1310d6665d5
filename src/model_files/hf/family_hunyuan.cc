// Hunyuan (dense, and A13B), ERNIE 4.5 (dense and with experts) and Ling 2.
#include <algorithm>
#include <cmath>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {
namespace {

// One number for all layers, possibly as a list of equal numbers. nullopt: the key is absent.
Result<std::optional<int64_t>> OneForAll(const Config& config, std::string_view key) {
    if (!config.Has(key)) return std::optional<int64_t>();
    if (!config.json()[key].is_array()) {
        WEFT_ASSIGN(const int64_t number, config.NeedInt({key}, 0, 1 << 20));
        return std::optional(number);
    }
    WEFT_ASSIGN(const std::vector<int64_t> list, config.Ints({key}));
    const bool same = !list.empty() && std::ranges::all_of(list, [&](int64_t each) {
        return each == list.front() && each >= 0 && each <= 1 << 20;
    });
    if (same) return std::optional(list.front());
    return config.Corrupt(key, "the same number for all layers");
}

// ---- Hunyuan ------------------------------------------------------------------------------------

// "dynamic" with an alpha means a larger base for any context: NTK-aware scaling.
Result<Config> HunyuanRope(const Config& config) {
    WEFT_ASSIGN(Config rope, config.Sub({"rope_scaling"}));
    if (rope.json().empty()) {
        WEFT_ASSIGN(rope, config.Sub({"rope_parameters"}));
    }
    WEFT_ASSIGN(const std::string type, rope.StringOr({"rope_type", "type"}, "default"));
    if (type != "dynamic" || !rope.Has("alpha")) return config;
    WEFT_ASSIGN(const double alpha, rope.NeedF64({"alpha"}));
    if (!(alpha >= 1 && alpha <= 1e9)) return rope.Corrupt("alpha", "1 to 1e9");
    WEFT_ASSIGN(const double outer, config.F64Or({"rope_theta"}, 10000.0));
    WEFT_ASSIGN(const double base, rope.F64Or({"rope_theta"}, outer));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    if (head_dim < 4) return config.Corrupt("head_dim", "at least 4");
    const auto dims = static_cast<double>(head_dim);
    const double theta = base * std::pow(alpha, dims / (dims - 2));
    return config.With(
        Json{{"rope_scaling", nullptr},
             {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", theta}}}});
}

Result<Config> HunyuanMoeAdjust(const Config& config) {
    WEFT_ASSIGN(const Config turned, HunyuanRope(config));
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"intermediate_size"}, 1, 1 << 20));
    Json over = {{"norm_topk_prob", true}, {"shared_expert_intermediate_size", ffn}};
    const struct {
        std::string_view key, from;
        int64_t usual;
    } numbers[] = {{"num_experts", "num_experts", 0},
                   {"num_experts_per_tok", "moe_topk", 1},
                   {"moe_intermediate_size", "moe_intermediate_size", ffn},
                   {"n_shared_experts", "num_shared_expert", 1}};
    for (const auto& [key, from, usual] : numbers) {
        WEFT_ASSIGN(const std::optional<int64_t> number, OneForAll(config, from));
        over[key] = number.value_or(usual);
    }
    if (over["n_shared_experts"] != 1) return config.Corrupt("num_shared_expert", "1");
    if (over["moe_intermediate_size"] != ffn) {
        return config.Corrupt("moe_intermediate_size", "the intermediate_size of config.json");
    }
    return turned.With(over);
}

// ---- ERNIE --------------------------------------------------------------------------------------

Status ErnieMoeMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    // llama.cpp does not load a file without this key.
    WEFT_ASSIGN(const int64_t step, config.NeedInt({"decoder_sparse_step"}, 1, 4096));
    meta.Int("interleave_moe_layer_step", step);
    return WriteExperts(config, meta, "moe_intermediate_size", "softmax");
}

Result<Config> ErnieMoeAdjust(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t first, config.IntOr({"moe_layer_start_index"}, 0, 4096, 1));
    WEFT_ASSIGN(const int64_t last, config.IntOr({"moe_layer_end_index"}, -1, 4096, -1));
    WEFT_ASSIGN(const int64_t step, config.IntOr({"moe_layer_interval"}, 1, 4096, 1));
    WEFT_ASSIGN(const int64_t experts, config.NeedInt({"moe_num_experts"}, 1, 1 << 16));
    WEFT_ASSIGN(const int64_t used, config.NeedInt({"moe_k"}, 1, experts));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"moe_num_shared_experts"}, 0, 64, 0));
    WEFT_ASSIGN(const int64_t width, config.NeedInt({"moe_intermediate_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const double least, config.F64Or({"moe_norm_min"}, 1e-12));
    // The best softmax scores always exceed this, so the limit has no effect.
    if (!(least <= 1e-6)) return config.Corrupt("moe_norm_min", "at most 1e-6");
    if (last != -1 && last < layers - 1) {
        return config.Corrupt("moe_layer_end_index", "-1 or the last layer");
    }
    return config.With(Json{{"first_k_dense_replace", first},
                            {"decoder_sparse_step", step},
                            {"num_experts", experts},
                            {"num_experts_per_tok", used},
                            {"n_shared_experts", shared},
                            {"shared_expert_intermediate_size", shared * width},
                            {"norm_topk_prob", true}});
}

// ---- Ling 2 -------------------------------------------------------------------------------------

Result<Config> LingAdjust(const Config& config) {
    WEFT_TRY(config.MustBe("norm_head", false));
    WEFT_ASSIGN(const int64_t shared, config.IntOr({"num_shared_experts"}, 0, 64, 0));
    return config.With(Json{{"n_shared_experts", shared}});
}

// ---- Tables -------------------------------------------------------------------------------------

constexpr Rule kHunyuanNormRules[] = {
    {"attn_q_norm", "self_attn.query_layernorm", Form::kNorm},
    {"attn_k_norm", "self_attn.key_layernorm", Form::kNorm},
};
constexpr Rule kHunyuanMoeRules[] = {
    {"ffn_gate_inp", "mlp.gate.wg", Form::kRouter},
    {"ffn_%_exps", "mlp.experts.*.%_proj", Form::kExperts, false},
    {"ffn_%_shexp", "mlp.shared_mlp.%_proj", Form::kLinear},
};
constexpr Rule kErnieBiasRules[] = {
    {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", Form::kVector, false},
};
constexpr Rule kLingRules[] = {
    {"attn_qkv", "attention.query_key_value", Form::kLinear},
    {"attn_output", "attention.dense", Form::kLinear},
    {"attn_q_norm", "attention.query_layernorm", Form::kNorm},
    {"attn_k_norm", "attention.key_layernorm", Form::kNorm},
    {"exp_probs_b.bias", "mlp.gate.expert_bias", Form::kVector, false},
};

constexpr Family kHunyuanFamilies[] = {
    {.model_type = "hunyuan_v1_dense",
     .architecture = "hunyuan-dense",
     .rules = {kPreNormRules, kAttentionRules, kHunyuanNormRules, kMlpRules},
     .adjust = HunyuanRope,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5})"},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "hunyuan-moe",
     .rules = {kPreNormRules, kAttentionRules, kHunyuanNormRules, kHunyuanMoeRules},
     .gating = "softmax",
     .adjust = HunyuanMoeAdjust,
     .defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-5})"},
    {.model_type = "ernie4_5",
     .architecture = "ernie4_5",
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "head_dim": 128, "num_key_value_heads": 2,
                     "tie_word_embeddings": true})"},
    {.model_type = "ernie4_5_moe",
     .architecture = "ernie4_5-moe",
     .rules = {kPreNormRules, kAttentionRules, kErnieBiasRules, kMoeRules, kSharedExpertsRules},
     .meta = ErnieMoeMeta,
     .adjust = ErnieMoeAdjust,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "num_key_value_heads": 4,
                     "moe_intermediate_size": 1536, "moe_num_experts": 64, "moe_k": 6,
                     "moe_num_shared_experts": 2, "tie_word_embeddings": true})",
     .more_tensors = "exp_probs_b.bias attn_q.bias?use_bias attn_k.bias?use_bias "
                     "attn_v.bias?use_bias attn_output.bias?use_bias ffn_gate.bias?use_bias "
                     "ffn_up.bias?use_bias ffn_down.bias?use_bias ffn_gate_shexp.bias?use_bias "
                     "ffn_up_shexp.bias?use_bias ffn_down_shexp.bias?use_bias "
                     "output.bias?use_bias"},
    {.model_type = "sarvam_moe",  // Ling 2's tensors; transformers' keys
     .architecture = "bailingmoe2",
     .rules = {kPreNormRules, kLingRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = kGroupRouting,
     .defaults = R"({"max_position_embeddings": 131072, "rope_theta": 8000000.0,
                     "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6,
                     "first_k_dense_replace": 1, "moe_intermediate_size": 1024, "n_group": 1,
                     "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true})",
     .rope = {.partial = true},
     .embedding = "word_embeddings"},
    {.model_type = "bailing_moe",
     .architecture = "bailingmoe2",
     .rules = {kPreNormRules, kLingRules, kMoeRules, kSharedExpertsRules},
     .gating = "sigmoid",
     .routing = "n_group topk_group norm_topk_prob routed_scaling_factor score_function",
     .adjust = LingAdjust,
     .defaults = R"({"norm_topk_prob": true, "partial_rotary_factor": 0.5})",
     .rope = {.partial = true},
     .embedding = "word_embeddings",
     .draft_head = &kFinalNormDraftHead},
};

}  // namespace

extern const std::span<const Family> kHunyuanModels = kHunyuanFamilies;

}  // namespace weft::model_files::hf
