// LongCat-Flash (Meituan 2025): two layers for each layer of the folder share the experts of the
// first one, whose result is added after the second one.
#include "families/family.h"
#include "model_files/hf/latent.h"

namespace weft::families::longcat {

Result<Config> LongcatAdjust(const Config& config) {
    for (const char* key : {"mla_scale_q_lora", "mla_scale_kv_lora"}) {
        WEFT_TRY(config.MustBe(key, true));
    }
    WEFT_TRY(config.MustBe("router_bias", false));
    WEFT_TRY(config.MustBe("zero_expert_type", "identity"));
    const Config renamed = Renamed(config, {{"num_experts_per_tok", "moe_topk"},
                                            {"intermediate_size", "ffn_hidden_size"},
                                            {"moe_intermediate_size", "expert_ffn_hidden_size"}});
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_layers"}, 1, 2048));
    Json dense = Json::array();
    for (int64_t layer = 0; layer < layers; ++layer) dense.push_back(2 * layer + 1);
    return renamed.With(
        Json{{"num_hidden_layers", 2 * layers}, {"mlp_only_layers", std::move(dense)}});
}

Status LongcatMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(LatentExpertsMeta(config, meta, "softmax"));
    WEFT_ASSIGN(const int64_t identities, config.IntOr({"zero_expert_num"}, 0, 1 << 16, 0));
    meta.Int("expert_zero_count", identities);
    return {};
}

// A norm's weights, times the root of hidden_size over their number.
Status AddScaledNorm(Assembly& assembly, const std::string& name, const std::string& gguf) {
    WEFT_ASSIGN(const int64_t hidden, assembly.config().NeedInt({"hidden_size"}, 1, kMostColumns));
    WEFT_ASSIGN(MatrixPtr norm, assembly.Checked(assembly.Column(name), name, 0));
    const double factor =
        std::sqrt(static_cast<double>(hidden) / static_cast<double>(norm->rows()));
    assembly.AddVector(gguf, Changed(std::move(norm), [factor](float value) {
                           return static_cast<float>(value * factor);
                       }));
    return {};
}

Status AddLongcatExperts(Assembly& assembly, int64_t layer, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t count, assembly.ExpertCount());
    WEFT_ASSIGN(const int64_t more, assembly.config().IntOr({"zero_expert_num"}, 0, 1 << 16, 0));
    for (const std::string part : {"gate", "up", "down"}) {
        const std::string module = prefix + "mlp.experts.*." + part + "_proj";
        WEFT_ASSIGN(MatrixPtr stack, assembly.Checked(assembly.Experts(module, count), module, 0));
        assembly.AddExperts(layer, "ffn_" + part, std::move(stack), count);
        // transformers also saves matrices of the other experts, which it does not read.
        for (int64_t expert = count; expert < count + more; ++expert) {
            WEFT_TRY(
                assembly.Linear(fmt::format("{}mlp.experts.{}.{}_proj", prefix, expert, part)));
        }
    }
    const std::string router = prefix + "mlp.router.classifier";
    WEFT_ASSIGN(MatrixPtr logits,
                assembly.Checked(assembly.Linear(router, 1, true), router, count + more));
    assembly.Add(Assembly::Block(layer, "ffn_gate_inp.weight"),
                 Converted(std::move(logits), DType::kF32));
    const std::string bias = prefix + "mlp.router.e_score_correction_bias";
    WEFT_ASSIGN(MatrixPtr column, assembly.Checked(assembly.Column(bias), bias, count + more));
    assembly.AddVector(Assembly::Block(layer, "exp_probs_b.bias"), std::move(column));
    return {};
}

Status LongcatLayer(Assembly& assembly, int64_t layer, const std::string& prefix) {
    const std::string attention = fmt::format("{}self_attn.{}.", prefix, layer % 2);
    WEFT_TRY(SplitKvB(assembly, layer, attention + "kv_b_proj"));
    for (const char* latent : {"q_a", "kv_a"}) {
        WEFT_TRY(AddScaledNorm(assembly, fmt::format("{}{}_layernorm.weight", attention, latent),
                               Assembly::Block(layer, fmt::format("attn_{}_norm.weight", latent))));
    }
    return layer % 2 == 0 ? AddLongcatExperts(assembly, layer, prefix) : Status();
}

constexpr Rule kLongcatRules[] = {
    {"attn_norm", "input_layernorm.#", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm.#", Form::kNorm},
    {"attn_q_a", "self_attn.#.q_a_proj", Form::kLinear},
    {"attn_q_b", "self_attn.#.q_b_proj", Form::kLinear},
    {"attn_kv_a_mqa", "self_attn.#.kv_a_proj_with_mqa", Form::kLinear},
    {"attn_output", "self_attn.#.o_proj", Form::kLinear},
    {"ffn_%", "mlps.#.%_proj", Form::kLinear},
};

constexpr Family kFolders[] = {
    Like(LatentFamily("longcat_flash", LongcatMeta,
                      R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                          "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
                          "qk_nope_head_dim": 128, "v_head_dim": 128, "num_layers": 28,
                          "n_routed_experts": 512, "zero_expert_num": 256,
                          "num_experts_per_tok": 12, "intermediate_size": 12288,
                          "moe_intermediate_size": 2048, "routed_scaling_factor": 6.0,
                          "rope_theta": 10000000.0})",
                      LongcatAdjust, "longcat-flash"),
         [](Family& family) {
             family.rules = {kLongcatRules};
             family.routing = "routed_scaling_factor";
             family.rope.reads_interleave = false;
             family.layer = LongcatLayer;
             family.sublayers = 2;
             family.draft_head = nullptr;
             family.more_tensors = "attn_k_b.weight attn_v_b.weight exp_probs_b.bias";
         })};

ValueId BuildLongcat(Builder& b, ValueId x) {
    const Span layers = b.shard().layers;
    const int64_t hidden = b.hyper().hidden;
    ValueId experts = program::kNoValue;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
        b.BeginLayer(layer);
        x = b.Add(x, b.LatentAttention(b.Norm(x, "attn_norm", hidden)));
        const ValueId h = b.Norm(x, "ffn_norm", hidden);
        const bool first = layer % 2 == 0;
        if (first) experts = b.Experts(h, h);
        x = b.Add(x, b.DenseMlp(h));
        if (!first) x = b.Add(x, experts);
    }
    return x;
}

constexpr Architecture kArchitectures[] = {
    {.family = {"longcat-flash", "LongCat-Flash (folders)",
                "latent attention, experts beside two layers, experts without matrices",
                "longcatFlash"},
     .build = BuildLongcat,
     .experts = true,
     .traits = {.layers_together = 2, .renormalises = false}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::longcat
