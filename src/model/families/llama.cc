// Llama 1-3 (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm, grouped-query attention with
// RoPE over neighboring pairs (Q and K in GGUF files are permuted for that), SwiGLU. Mixtral (Jiang
// et al. 2024) is the same with experts. OLMo (Groeneveld et al. 2024) has LayerNorms without
// weights, and may clamp queries, keys and values.
#include "model/architecture.h"
#include "model/layers.h"

namespace weft::model {

using program::ValueId;

// The embedding and the heads after RoPE are normed.
static ValueId BuildNanoChat(Builder& b, ValueId x) {
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

namespace {

constexpr Architecture kLlamaTable[] = {
    {.family = {"arcee", "Arcee AFM", "as llama, with MLPs of ReLU squared", "arcee"},
     .build = LlamaLayers,
     .traits = {.ungated = Ungated::kReluSquared}},
    {.family = {"ernie4_5", "ERNIE 4.5 (dense)", "as llama", "ernie"}, .build = LlamaLayers},
    {.family = {"ernie4_5-moe", "ERNIE 4.5 with experts (text)",
                "leading dense layers, a shared expert", "ernieMoe, ernieMoeBiases"},
     .build = LlamaLayers,
     .experts = true},
    {.family = {"internlm2", "InternLM 2", "as llama", "internlm2"}, .build = LlamaLayers},
    {.family =
         {"llama", "Llama 1-3.x, Mistral, Ministral 8B, Mixtral, SmolLM 1-2",
          "linear, Llama 3's and YaRN RoPE; windows; experts; temperature",
          "llama, llamaTied, llamaLinear, llama3Rope, llamaGelu, mistral, ministral, mixtral"},
     .build = LlamaLayers,
     .experts = true,
     .traits = {.temperature = true}},
    {.family = {"nanochat", "nanochat (folders)",
                "norms without weights, heads normed after RoPE, MLPs of ReLU squared, a soft cap",
                "nanochat"},
     .build = BuildNanoChat,
     .traits = {.norms = Norms::kPlainRms, .ungated = Ungated::kReluSquared, .turns_back = true}},
    {.family = {"olmo", "OLMo 1, 1.7", "LayerNorm without weights, clamped heads",
                "olmo, olmoClamped"},
     .build = LlamaLayers,
     .traits = {.norms = Norms::kPlainLayer, .clamps = true}},
    {.family = {"mistral3", "Ministral 3, Devstral 2", "YaRN, temperature", "ministral3"},
     .build = LlamaLayers,
     .experts = true,
     .traits = {.temperature = true}},
};

}  // namespace

extern const std::span<const Architecture> kLlamaFamily = kLlamaTable;

}  // namespace weft::model
