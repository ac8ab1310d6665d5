// nanochat (Karpathy 2025): Llama's block with norms that have no weights; the embedding, and the
// heads after RoPE, are normed.
#include "families/family.h"

namespace weft::families::nanochat {

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

constexpr Family kFolders[] = {
    {.model_type = "nanochat",
     .architecture = "nanochat",
     .rules = {kAttentionRules, kNanoRules},
     .meta = NanoMeta,
     .defaults = R"({"max_position_embeddings": 2048, "final_logit_softcapping": 15.0})",
     .plain_norms = true,
     .caps = "final_logit_softcapping"},
};

// The embedding and the heads after RoPE are normed.
ValueId BuildNanoChat(Builder& b, ValueId x) {
    const int64_t dim = b.hyper().head_dim;
    const bool first = b.shard().first_stage() && b.shard().layers.begin == 0;
    if (first) x = b.Norm(x, "token_embd_norm", b.hyper().hidden);
    return PreNormLayers(b, x, [&](ValueId h) {
        const ValueId q = b.NormPlain(b.Rope(b.ToHeads(h, "attn_q", false), false), dim);
        const ValueId k = b.NormPlain(b.Rope(b.ToKvHeads(h, "attn_k", false), false), dim);
        const ValueId v = b.ToKvHeads(h, "attn_v", false);
        return b.FromHeads(b.Attention(q, k, v), "attn_output");
    });
}

constexpr Architecture kArchitectures[] = {
    {.family = {"nanochat", "nanochat (folders)",
                "norms without weights, heads normed after RoPE, MLPs of ReLU squared, a soft cap",
                "nanochat"},
     .build = BuildNanoChat,
     .traits = {.norms = Norms::kPlainRms, .ungated = Ungated::kReluSquared, .turns_back = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::nanochat
