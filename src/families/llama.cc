// Llama 1-3 (Touvron et al. 2023; Grattafiori et al. 2024), InternLM 3, CWM and Helium: pre-norm,
// grouped-query attention with RoPE over neighboring pairs (Q and K in GGUF files are permuted for
// that), SwiGLU.
#include "families/family.h"

namespace weft::families::llama {

// Layers without a list of types: the first of each four has no window.
Status CwmMeta(const Config& config, MetaWriter& meta) {
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, kMostContext, 0));
    return WriteWindow(config, meta, window, [](int64_t layer) { return layer % 4 != 0; });
}

constexpr Family kFolders[] = {
    {.model_type = "llama",
     .also = "internlm3 iquestcoder",
     .architecture = "llama",
     .meta = WriteGated,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 2048})",
     .written = {.name = "LlamaForCausalLM", .mlp_bias = true}},
    {.model_type = "cwm",
     .architecture = "llama",
     .meta = CwmMeta,
     .pairs = true,
     .defaults = R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                     "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192,
                     "rope_parameters": {
                         "rope_type": "llama3", "rope_theta": 1000000.0, "factor": 16.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}})"},
    {.model_type = "helium",
     .architecture = "llama",
     .defaults = R"({"rms_norm_eps": 1e-8, "rope_theta": 100000.0, "head_dim": 128})"},
};
constexpr Architecture kArchitectures[] = {
    {.family =
         {"llama", "Llama 1-3.x, Mistral, Ministral 8B, Mixtral, SmolLM 1-2",
          "linear, Llama 3's and YaRN RoPE; windows; experts; temperature",
          "llama, llamaTied, llamaLinear, llama3Rope, llamaGelu, mistral, ministral, mixtral"},
     .build = LlamaLayers,
     .experts = true,
     .traits = {.temperature = true}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::llama
