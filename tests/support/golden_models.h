// Tiny models as GGUF files. Their golden logits come from transformers
// (tests/data/model_logits.safetensors and tests/data/logits, made by tools/make_model_golden.py).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/golden_file.h"
#include "support/tiny_gguf.h"

namespace weft::support {

// A tensor "CASE/NAME" of the golden files; empty: no such name.
inline std::vector<float> Golden(const std::string& name) {
    const std::string of_case = name.substr(0, name.find('/'));
    return GoldenFile(LogitsPath(of_case, "/model_logits.safetensors")).Tensor(name);
}

using Numbers = std::map<std::string, double>;

struct GoldenCase {
    const char* name;
    const char* architecture;
    bool tied = false;
    Numbers numbers{};         // further keys of the file
    const char* scaling = "";  // RoPE's
    int64_t layers = 3;
    std::vector<bool> windowed{};
    double rope_base = 10000;
};
inline void PrintTo(const GoldenCase& model, std::ostream* out) {
    *out << model.name;
}

namespace golden {

inline const Numbers kYarn = {{"rope.scaling.factor", 4},
                              {"rope.scaling.original_context_length", 64}};
inline const Numbers kMinistral3 = {{"rope.scaling.factor", 4},
                                    {"rope.scaling.original_context_length", 6},
                                    {"attention.temperature_scale", 0.7}};
inline const Numbers kGranite = {{"embedding_scale", 12},
                                 {"attention.scale", 0.2},
                                 {"residual_scale", 0.22},
                                 {"logit_scale", 3}};
inline const Numbers kGemma2 = {
    {"attention.sliding_window", 6}, {"attn_logit_softcapping", 3}, {"final_logit_softcapping", 2}};
inline const Numbers kGemma3 = {{"attention.sliding_window", 6}, {"rope.scaling.factor", 8}};

inline const Numbers kGemma4 = {{"attention.sliding_window", 6},
                                {"final_logit_softcapping", 2},
                                {"attention.shared_kv_layers", 0},
                                {"embedding_length_per_layer_input", 0}};

inline Numbers With(Numbers numbers, const char* key, double value) {
    numbers[key] = value;
    return numbers;
}

// As Phi-3's converter writes them: a magnitude, and factors for both sides of the original
// context, 64 or 16 of 512 positions. The 24 tokens of these tests take a page of 64.
inline Numbers LongRope(double original) {
    const double magnitude = std::sqrt(1 + std::log(512 / original) / std::log(original));
    return {{"rope.scaling.original_context_length", original},
            {"rope.scaling.attn_factor", magnitude}};
}

}  // namespace golden

inline std::vector<GoldenCase> GoldenCases() {
    using namespace golden;
    return {
        GoldenCase{"llama", "llama"},
        GoldenCase{"llamaTied", "llama", true},
        GoldenCase{"llamaLinear", "llama", false, {{"rope.scaling.factor", 4}}, "linear"},
        GoldenCase{.name = "llama3Rope", .architecture = "llama", .rope_base = 500000},
        GoldenCase{"mistral", "llama", false, {{"attention.sliding_window", 7}}},
        GoldenCase{.name = "ministral",
                   .architecture = "llama",
                   .numbers = {{"attention.sliding_window", 7}},
                   .windowed = {true, false, true}},
        GoldenCase{"ministral3", "mistral3", false, kMinistral3, "yarn"},
        GoldenCase{"qwen2", "qwen2"},
        GoldenCase{"qwen2Yarn", "qwen2", false, kYarn, "yarn"},
        GoldenCase{"qwen3Tied", "qwen3", true},
        GoldenCase{"qwen2vl", "qwen2vl", true},
        GoldenCase{.name = "qwen3vl", .architecture = "qwen3vl", .rope_base = 5000000},
        GoldenCase{"granite", "granite", false, kGranite},
        GoldenCase{"olmo2", "olmo2"},
        GoldenCase{"olmo3",
                   "olmo2",
                   false,
                   With(kYarn, "attention.sliding_window", 7),
                   "yarn",
                   3,
                   {true, false, true}},
        GoldenCase{"seedOss", "seed_oss"},
        GoldenCase{"smollm3", "smollm3", true, {}, "", 4},
        GoldenCase{"phi3Short", "phi3", false, LongRope(64)},
        GoldenCase{"phi3Long", "phi3", false, With(LongRope(16), "attention.sliding_window", 7)},
        GoldenCase{"gemma2", "gemma2", true, kGemma2},
        GoldenCase{"gemma3", "gemma3", true, kGemma3, "linear", 6, {}, 1e6},
        GoldenCase{"gemma4", "gemma4", true, kGemma4, "", 3, {true, true, false}, 1e6},
        GoldenCase{"qwen3next", "qwen3next"},
        GoldenCase{"qwen35", "qwen35"},
        GoldenCase{"lfm2", "lfm2", true}};
}

// Writes the model of a case to `path`.
inline void WriteGolden(const GoldenCase& c, const std::string& path) {
    model::Hyper h = OddHyper(c.architecture);
    h.hidden = 144;
    h.ffn = 96;
    h.head_dim = h.rotary_dim = 16;
    h.tied = c.tied;
    h.layers = c.layers;
    const std::string name = c.name + std::string("/");
    TinyFile file{.hyper = h,
                  .rope_base = c.rope_base,
                  .vectors = {{"rope_freqs.weight", Golden(name + "rope_factors")},
                              {"rope_factors_short.weight", Golden(name + "rope_short")},
                              {"rope_factors_long.weight", Golden(name + "rope_long")}},
                  .numbers = c.numbers,
                  .windowed = c.windowed};
    if (c.architecture == std::string("phi3")) file.hyper.rotary_dim = 8;
    if (c.architecture == std::string("gemma4")) {
        file.hyper.windowed = c.windowed;
        file.hyper.windowed_heads = {3, 16, 16};
        file.hyper.kv_heads = 1;
        file.hyper.head_dim = file.hyper.rotary_dim = 32;
        // RoPE rotates a quarter of the pairs.
        std::vector<float> factors(16, 1e30f);
        std::fill_n(factors.begin(), 4, 1.0f);
        file.vectors["rope_freqs.weight"] = factors;
    }
    if (c.architecture == std::string("qwen3next") || c.architecture == std::string("qwen35")) {
        AddState(file.hyper, c.architecture == std::string("qwen35"));
        file.hyper.rotary_dim = 4;
    }
    if (c.architecture == std::string("lfm2")) AddShortConv(file.hyper);
    if (*c.scaling != 0) file.strings["rope.scaling.type"] = c.scaling;
    WriteTinyGguf(path, file);
}

inline std::vector<int> GoldenTokens(const GoldenCase& c) {
    std::vector<int> tokens;
    for (float token : Golden(c.name + std::string("/tokens"))) {
        tokens.push_back(static_cast<int>(token));
    }
    return tokens;
}

}  // namespace weft::support
