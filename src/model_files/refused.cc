#include "model_files/refused.h"

#include <fmt/format.h>

namespace weft::model_files {
namespace {

constexpr RefusedModel kRefusedModels[] = {
    {"apertus", "apertus", "Apertus", "the activation xIELU"},
    {"command-r", "cohere", "Command R, R+", "heads with LayerNorms of their own"},
    {"deepseek4", "deepseek_v4", "DeepSeek V4 Flash, Pro",
     "KV compressors, an indexer, hyper-connections, a hash router"},
    {"falcon", "falcon", "Falcon 7B to 180B",
     "LayerNorm with biases, attention beside an MLP without a gate"},
    {"falcon-h1", "falcon_h1", "Falcon-H1", "Mamba-2 beside attention"},
    {"glm5next", "glm5_next", "GLM-5-next", "recurrent layers beside an indexer"},
    {"gemma", "gemma", "Gemma 1", "a builder: Gemma 2's block without windows and caps"},
    {"gemma3n", "gemma3n", "Gemma 3n", "embeddings by layer, KV shared by layers, AltUp"},
    {"granitehybrid", "granitemoehybrid", "Granite 4 (Micro, H Tiny, H Small)", "Mamba-2 layers"},
    {"hy_v4", "hy_v4", "Hy4", "recurrent layers beside an indexer"},
    {"internlm2", "internlm2", "InternLM 2", "a builder: llama's block"},
    {"jamba", "jamba", "Jamba", "Mamba layers"},
    {"", "kimi_k3", "Kimi-K3", "a delta rule with decay by channel, latent experts"},
    {"kimi-linear", "kimi_linear", "Kimi-Linear", "a delta rule with decay by channel"},
    {"lfm2", "lfm2", "LFM2, LFM2.5", "gated short convolutions"},
    {"lfm2moe", "lfm2_moe", "LFM2 with experts", "gated short convolutions"},
    {"bailingmoe3", "bailing_hybrid", "Ling 2.5 and 3, Ring 2.5",
     "linear attention, a delta rule with decay by channel"},
    {"llama4", "llama4", "Llama 4 Scout, Maverick",
     "attention in chunks, experts whose input is scaled"},
    {"deci", "nemotron-nas", "Llama-3.3-Nemotron-Super", "layers without attention"},
    {"longcat-flash", "longcat_flash", "LongCat-Flash", "two attentions a layer, empty experts"},
    {"minicpm", "minicpm", "MiniCPM", "a builder: llama's block with Granite's scales"},
    {"minimax-m3", "minimax_m3_vl", "MiniMax-M3", "an indexer of blocks"},
    {"", "mistral_large4", "Mistral Large 4", "an indexer"},
    {"muse-glimmer", "muse_glimmer", "Muse Glimmer", "an output gate of its own"},
    {"nemotron_h", "nemotron_h", "Nemotron Nano 2", "Mamba-2 layers"},
    {"nemotron_h_moe", "nemotron_h", "Nemotron 3 Nano, Super, Ultra",
     "Mamba-2 layers, experts without a gate"},
    {"", "olmo_hybrid", "OLMo-Hybrid", "recurrent layers between OLMo's"},
    {"phimoe", "phimoe", "Phi-3.5-MoE", "LayerNorm with biases, sparsemixer"},
    {"", "qwen4_exp", "Qwen4-exp, Qwen 3.8", "recurrent layers beside an indexer"},
    {"stablelm", "stablelm", "StableLM 2", "LayerNorm with biases"},
    {"starcoder2", "starcoder2", "StarCoder 2", "LayerNorm with biases, an MLP without a gate"},
};

}  // namespace

std::span<const RefusedModel> RefusedModels() {
    return kRefusedModels;
}

std::string WhyRefused(std::string_view word) {
    if (word.empty()) return {};
    for (const RefusedModel& model : kRefusedModels) {
        if (word != model.architecture && word != model.model_type) continue;
        return fmt::format(" ({}; it needs {})", model.models, model.needs);
    }
    return {};
}

}  // namespace weft::model_files
