// Hunyuan, dense and with experts (Tencent 2025): query and key heads are normed after RoPE.
#include "families/family.h"

namespace weft::families::hunyuan {

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

constexpr Rule kHunyuanNormRules[] = {
    {"attn_q_norm", "self_attn.query_layernorm", Form::kNorm},
    {"attn_k_norm", "self_attn.key_layernorm", Form::kNorm},
};
constexpr Rule kHunyuanMoeRules[] = {
    {"ffn_gate_inp", "mlp.gate.wg", Form::kRouter},
    {"ffn_%_exps", "mlp.experts.*.%_proj", Form::kExperts, false},
    {"ffn_%_shexp", "mlp.shared_mlp.%_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
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
};

ValueId BuildHunyuan(Builder& b, ValueId x) {
    const int64_t head_dim = b.hyper().head_dim;
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.Rope(b.ToHeads(h, "attn_q", false), false);
        const ValueId k = b.Rope(b.ToKvHeads(h, "attn_k", false), false);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        const ValueId a =
            b.Attention(b.Norm(q, "attn_q_norm", head_dim), b.Norm(k, "attn_k_norm", head_dim), v);
        return b.FromHeads(a, "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"hunyuan-dense", "Hunyuan 0.5B to 7B", "heads normed after RoPE, NTK", "hunyuan"},
     .build = BuildHunyuan,
     .traits = {.alpha = true}},
    {.family = {"hunyuan-moe", "Hunyuan A13B", "heads normed after RoPE, NTK, a shared expert",
                "hunyuanMoe"},
     .build = BuildHunyuan,
     .experts = true},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::hunyuan
