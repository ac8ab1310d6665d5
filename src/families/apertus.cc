// Apertus (Swiss AI 2025): Qwen 3's layers with MLPs of xIELU, which have no gate.
#include "families/family.h"

namespace weft::families::apertus {

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

constexpr Family kFolders[] = {
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
};
constexpr Architecture kArchitectures[] = {
    {.family = {"apertus", "Apertus (8B, 70B)", "normed heads, MLPs of xIELU without a gate",
                "apertus"},
     .build = NormedHeadLayers,
     .traits = {.ungated = Ungated::kXielu}},
};

extern const Tables kTables = {kFolders, kArchitectures};

}  // namespace weft::families::apertus
