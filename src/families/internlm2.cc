// InternLM 2 (Cai et al. 2024): Llama's layers; folders have queries, keys and values in one
// matrix.
#include "families/family.h"

namespace weft::families::internlm2 {

constexpr Rule kInternLm2Rules[] = {
    {"attn_norm", "attention_norm", Form::kNorm},   {"ffn_norm", "ffn_norm", Form::kNorm},
    {"attn_output", "attention.wo", Form::kLinear}, {"ffn_gate", "feed_forward.w1", Form::kLinear},
    {"ffn_up", "feed_forward.w3", Form::kLinear},   {"ffn_down", "feed_forward.w2", Form::kLinear},
};

constexpr Family kFolders[] = {
    {.model_type = "internlm2",
     .architecture = "internlm2",
     .rules = {kInternLm2Rules},
     .qkv = {"attention.wqkv"},
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048})",
     .embedding = "tok_embeddings",
     .output = "output"},
};
constexpr Architecture kArchitectures[] = {
    {.family = {"internlm2", "InternLM 2", "as llama", "internlm2"}, .build = LlamaLayers},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::internlm2
