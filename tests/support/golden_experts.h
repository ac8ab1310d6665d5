// Tiny models with experts and with latent attention, as GGUF files. Their golden logits come from
// transformers (tests/data/moe_logits.safetensors and tests/data/logits, made by
// tools/make_moe_golden.py).
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/tiny_gguf.h"

namespace weft::support {

inline constexpr const char* kExpertCases[] = {
    "mixtral",      "qwen3moe",   "qwen2moe",       "deepseekV2", "deepseekV3",  "kimiK2",
    "glm4moe",      "minimaxM2",  "gptOss",         "gemma4Moe",  "hyV3",        "qwen3vlmoe",
    "dots1",        "solarOpen",  "youtu",          "mistral4",   "deepseekV32", "glmDsa",
    "qwen3nextMoe", "qwen35moe",  "deepseekV32Top", "glmDsaTop",  "minimaxM3",   "minimaxM3Top",
    "lfm2moe",      "kimiLinear", "ling3"};

inline TinyFile ExpertBaseFile(const std::string& architecture) {
    TinyFile file;
    model::Hyper& h = file.hyper;
    h = OddHyper(architecture);
    h.hidden = 144;
    h.ffn = 96;
    h.head_dim = h.rotary_dim = 16;
    h.moe.experts = 10;
    h.moe.used = 3;
    h.moe.ffn = 96;
    return file;
}

inline TinyFile ExpertLatentFile(double log_multiplier) {
    TinyFile file = ExpertBaseFile("deepseek2");
    model::Hyper& h = file.hyper;
    h.rms_eps = 1e-6f;
    h.latent = {.rank = 64, .q_rank = 0, .nope = 32, .rope = 16, .value = 24};
    h.head_dim = 48;
    h.moe.experts = 12;
    h.moe.shared_ffn = 192;
    file.form.dense_layers = 1;
    file.strings["rope.scaling.type"] = "yarn";
    file.numbers["rope.scaling.factor"] = 40;
    file.numbers["rope.scaling.original_context_length"] = 64;
    file.numbers["rope.scaling.yarn_log_multiplier"] = log_multiplier;
    return file;
}

inline TinyFile ExpertSigmoidFile() {
    TinyFile file = ExpertLatentFile(0.1);
    model::Hyper& h = file.hyper;
    h.latent.q_rank = 48;
    h.moe.shared_ffn = 96;
    h.moe.route.score = program::GateScore::kSigmoid;
    h.moe.route.renormalise = true;
    h.moe.route.scale = 2.5f;
    return file;
}

inline TinyFile ExpertTemperedFile() {
    TinyFile file = ExpertLatentFile(0.1);
    file.hyper.architecture = "mistral4";
    file.hyper.latent.q_rank = 48;
    file.hyper.moe.shared_ffn = 96;
    file.numbers["rope.scaling.original_context_length"] = 6;
    file.numbers["attention.temperature_scale"] = 0.7;
    return file;
}

// An indexer that selects as many positions as there are tokens or, with "Top", five.
inline TinyFile ExpertSparseFile(bool glm, bool top = false) {
    TinyFile file = ExpertSigmoidFile();
    model::Hyper& h = file.hyper;
    h.architecture = glm ? "glm-dsa" : "deepseek32";
    h.indexer.top = top ? 5 : 16;
    h.indexer.heads = top ? 11 : 2;
    h.indexer.dim = 32;
    if (!glm) {
        h.moe.route.groups = 4;
        h.moe.route.groups_used = 2;
        return file;
    }
    if (top) h.indexer.own = {true, false, true};
    file.numbers.clear();
    file.strings.clear();
    file.form.dense_layers = 2;
    return file;
}

// A model with a sigmoid gate; false: `name` is not one.
inline bool SetSigmoidFile(const std::string& name, TinyFile& file) {
    const std::map<std::string, std::string> architectures = {{"glm4moe", "glm4moe"},
                                                              {"minimaxM2", "minimax-m2"},
                                                              {"hyV3", "hy_v3"},
                                                              {"dots1", "dots1"},
                                                              {"solarOpen", "glm4moe"},
                                                              {"minimaxM3", "minimax-m3"},
                                                              {"minimaxM3Top", "minimax-m3"}};
    const auto found = architectures.find(name);
    if (found == architectures.end()) return false;
    file = ExpertBaseFile(found->second);
    model::Hyper& h = file.hyper;
    h.moe.route.score = program::GateScore::kSigmoid;
    h.moe.route.renormalise = true;
    if (name == "glm4moe" || name.starts_with("minimax")) h.rotary_dim = 8;
    if (name == "minimaxM2") return true;
    h.moe.route.scale = name == "hyV3" ? 2.5f : 1.5f;
    h.moe.shared_ffn = name == "dots1" ? 192 : 96;
    file.form.dense_layers = name == "solarOpen" ? 0 : 1;
    file.form.plain_heads = name == "solarOpen";
    if (!name.starts_with("minimaxM3")) return true;
    h.ffn = 160;
    h.indexer = {.top = 16, .heads = 3, .dim = 16, .block = 8, .local = 1};
    if (name == "minimaxM3") return true;
    // Two blocks of three positions, with a full-attention layer between them.
    h.indexer = {
        .top = 6, .heads = 3, .dim = 20, .block = 3, .local = 1, .own = {true, false, true}};
    return true;
}

inline TinyFile ExpertRecurrentFile(const std::string& name) {
    const bool cycles = name == "qwen35moe";
    TinyFile file = ExpertBaseFile(cycles ? name : "qwen3next");
    AddState(file.hyper, cycles);
    file.hyper.rotary_dim = 4;
    file.hyper.moe.shared_ffn = 192;
    file.hyper.moe.route.renormalise = true;
    return file;
}

inline TinyFile ExpertLfm2File() {
    TinyFile file = ExpertBaseFile("lfm2moe");
    AddShortConv(file.hyper);
    file.hyper.moe.route.score = program::GateScore::kSigmoid;
    file.hyper.moe.route.renormalise = true;
    file.form.dense_layers = 1;
    return file;
}

inline TinyFile ExpertKimiLinearFile(bool ling) {
    TinyFile file = ExpertBaseFile(ling ? "bailingmoe3" : "kimi-linear");
    AddKimiDelta(file.hyper);
    if (ling) {
        file.numbers["kda.gate_lower_bound"] = -5;
        file.hyper.moe.route.groups = 2;
    }
    file.hyper.moe.route.score = program::GateScore::kSigmoid;
    file.hyper.moe.route.renormalise = true;
    file.hyper.moe.route.scale = 2.446f;
    file.hyper.moe.shared_ffn = 96;
    file.form.dense_layers = 1;
    return file;
}

inline TinyFile ExpertGoldenFile(const std::string& name) {
    if (name == "mixtral") return ExpertBaseFile("llama");
    if (name == "kimiK2") {
        TinyFile file = ExpertSigmoidFile();
        file.numbers["rope.scaling.yarn_beta_fast"] = 1;
        return file;
    }
    if (name == "mistral4") return ExpertTemperedFile();
    if (name.starts_with("deepseekV32") || name.starts_with("glmDsa")) {
        return ExpertSparseFile(name.starts_with("glm"), name.ends_with("Top"));
    }
    if (name == "youtu") {  // without experts
        TinyFile file = ExpertBaseFile("deepseek2");
        file.hyper.rms_eps = 1e-6f;
        file.hyper.latent = {.rank = 64, .q_rank = 48, .nope = 32, .rope = 16, .value = 24};
        file.hyper.head_dim = 48;
        file.hyper.moe = {};
        file.hyper.tied = true;
        return file;
    }
    if (name == "deepseekV3") {
        TinyFile file = ExpertSigmoidFile();
        file.hyper.moe.route.groups = 4;
        file.hyper.moe.route.groups_used = 2;
        return file;
    }
    if (name == "deepseekV2") {
        TinyFile file = ExpertLatentFile(0.0707);
        file.form.split_latent = false;
        file.hyper.moe.route.groups = 4;
        file.hyper.moe.route.groups_used = 2;
        file.hyper.moe.route.scale = 1.5f;
        return file;
    }
    if (name == "gptOss") {
        TinyFile file = ExpertBaseFile("gpt-oss");
        file.strings["rope.scaling.type"] = "yarn";
        file.numbers["rope.scaling.factor"] = 32;
        file.numbers["rope.scaling.original_context_length"] = 64;
        file.numbers["attention.sliding_window"] = 6;
        return file;
    }
    if (name == "gemma4Moe") {
        TinyFile file = ExpertBaseFile("gemma4");
        model::Hyper& h = file.hyper;
        h.tied = true;
        h.ffn = 160;
        h.windowed = file.windowed = {true, true, false};
        h.windowed_heads = {3, 16, 16};
        h.kv_heads = 1;
        h.head_dim = h.rotary_dim = 32;
        h.moe.route.renormalise = true;
        file.rope_base = 1e6;
        file.numbers = {{"attention.sliding_window", 6}, {"final_logit_softcapping", 2}};
        std::vector<float> factors(16, 1e30f);  // RoPE rotates a quarter of the pairs
        std::fill_n(factors.begin(), 4, 1.0f);
        file.vectors["rope_freqs.weight"] = factors;
        return file;
    }
    if (TinyFile file; SetSigmoidFile(name, file)) return file;
    if (name == "lfm2moe") return ExpertLfm2File();
    if (name == "kimiLinear" || name == "ling3") return ExpertKimiLinearFile(name == "ling3");
    if (name == "qwen3nextMoe" || name == "qwen35moe") return ExpertRecurrentFile(name);
    TinyFile file = ExpertBaseFile(name);
    if (name == "qwen2moe") file.hyper.moe.shared_ffn = 192;
    return file;
}

}  // namespace weft::support
