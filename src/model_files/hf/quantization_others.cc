// quantization_config of AutoRound, MLX and bitsandbytes.
#include <algorithm>
#include <array>

#include "model_files/hf/quantization.h"

namespace weft::model_files::hf {
namespace {

// AutoRound's packing formats.
constexpr struct {
    std::string_view name;
    Method method;
    bool zero_plus_one;
} kPackings[] = {{"auto_round:auto_gptq", Method::kGptq, true},
                 {"auto_round:gptq", Method::kGptq, true},
                 {"auto_gptq", Method::kGptq, true},
                 {"auto", Method::kGptq, true},
                 {"auto_round", Method::kGptq, false},
                 {"auto_round:gptqmodel", Method::kGptq, false},
                 {"auto_round:auto_awq", Method::kAwq, false},
                 {"auto_round:awq", Method::kAwq, false},
                 {"auto_awq", Method::kAwq, false},
                 // The tensors of compressed-tensors.
                 {"auto_round:llm_compressor", Method::kCompressed, false},
                 {"llm_compressor", Method::kCompressed, false},
                 {"auto_round:fp8_static", Method::kCompressed, false},
                 {"auto_round:fp8", Method::kCompressed, false},
                 // Rounded weights, saved as plain ones.
                 {"auto_round:fake", Method::kNone, false}};

bool GoodAutoRoundBits(Method method, int64_t bits, std::string_view type) {
    if (bits >= 16 || method == Method::kNone) return true;
    if (method == Method::kAwq) return bits == 4;
    if (method == Method::kGptq) return bits == 2 || bits == 3 || bits == 4 || bits == 8;
    return bits == 8 || (bits == 4 && type != "fp");
}

Status ReadAutoRoundBits(const Config& config, Scheme& scheme) {
    WEFT_ASSIGN(const int64_t bits, config.IntOr({"bits"}, 1, 32, scheme.bits));
    const bool floats = scheme.method == Method::kCompressed;
    WEFT_ASSIGN(const std::string type,
                config.StringOr({"data_type"}, floats && scheme.floats ? "mx_fp" : "int"));
    if (!GoodAutoRoundBits(scheme.method, bits, type)) {
        constexpr std::array<std::string_view, 3> kNames = {"compressed-tensors", "AWQ", "GPTQ"};
        const size_t name = floats ? 0 : scheme.method == Method::kAwq ? 1 : 2;
        return RefusedQuantization(
            config, fmt::format("AutoRound of {} bits packed as {}", bits, kNames[name]));
    }
    constexpr std::array<std::string_view, 9> kFloats = {
        "mx_fp", "mx_fp4", "mx_fp8", "mx_fp4e2m1", "mx_fp_rceil", "nv_fp", "nv_fp4", "fp", "fp8"};
    const bool is_float = std::ranges::find(kFloats, type) != kFloats.end();
    const bool good = type == "int" || (floats && is_float) || scheme.method == Method::kNone;
    if (!good && bits < 16) {
        return RefusedQuantization(config, fmt::format("AutoRound's data_type '{}'", Shown(type)));
    }
    scheme.bits = static_cast<int>(bits);
    scheme.floats = floats && is_float;
    // (FP8's scales show their blocks.)
    if (type.starts_with("fp")) {
        scheme.group = 0;
    } else if (config.Has("group_size")) {
        WEFT_ASSIGN(scheme.group, ReadGroupSize(config));
    }
    return {};
}

bool IsExpression(const std::string& name) {
    return name.find_first_of("*+?^$()[]{}|\\") != name.npos;
}

Status ReadMlxScheme(const Config& config, Scheme& scheme) {
    constexpr struct {
        const char* name;
        MlxMode mode;
        int bits;
        int64_t group;
    } kModes[] = {{"affine", MlxMode::kAffine, 4, 64},
                  {"mxfp4", MlxMode::kMxfp4, 4, 32},
                  {"mxfp8", MlxMode::kMxfp8, 8, 32},
                  {"nvfp4", MlxMode::kNvfp4, 4, 16}};
    if (config.Has("mode")) {
        WEFT_ASSIGN(const std::string named, config.StringOr({"mode"}, "affine"));
        bool found = false;
        for (const auto& [name, mode, bits, group] : kModes) {
            if (named != name) continue;
            found = true;
            scheme.mode = mode;
            scheme.bits = bits;
            scheme.group = group;
        }
        if (!found) {
            return RefusedQuantization(config, fmt::format("MLX's mode '{}'", Shown(named)));
        }
    }
    const Scheme usual = scheme;
    WEFT_ASSIGN(const int64_t bits, config.IntOr({"bits"}, 1, 32, usual.bits));
    WEFT_ASSIGN(scheme.group, config.IntOr({"group_size"}, 1, 1 << 20, usual.group));
    scheme.bits = static_cast<int>(bits);
    const bool affine = scheme.mode == MlxMode::kAffine;
    const bool good = affine ? (bits >= 2 && bits <= 6) || bits == 8
                             : bits == usual.bits && scheme.group == usual.group;
    if (good) return {};
    return RefusedQuantization(config,
                               fmt::format("MLX with {} bits in groups of {}", bits, scheme.group));
}

}  // namespace

Result<Quantization> ReadAutoRound(const Config& config, std::string_view text) {
    Quantization read;
    WEFT_ASSIGN(const std::string packing,
                config.StringOr({"packing_format", "format", "backend"}, "auto_round:auto_gptq"));
    const auto* known =
        std::ranges::find(kPackings, packing, [](const auto& row) { return row.name; });
    if (known == std::end(kPackings)) {
        return RefusedQuantization(config, fmt::format("AutoRound's packing '{}'", Shown(packing)));
    }
    if (known->method == Method::kNone) return read;
    read.method = known->method;
    read.zero_plus_one = known->zero_plus_one;
    WEFT_ASSIGN(const int64_t bits, config.NeedInt({"bits"}, 1, 32));
    read.bits = static_cast<int>(bits);
    WEFT_TRY(ReadAutoRoundBits(config, read));
    WEFT_ASSIGN(const Config extra, config.Sub({"extra_config"}));
    for (const std::string& name : KeysInOrder(extra, text)) {
        if (extra.json()[name].empty()) continue;
        WEFT_ASSIGN(const Config own, extra.Sub({name}));
        Scheme scheme = read;
        WEFT_TRY(ReadAutoRoundBits(own, scheme));
        read.modules.emplace(name, scheme);
        if (!IsExpression(name)) continue;
        WEFT_ASSIGN(tokenizer::Regex regex, ReadExpression(config, name));
        read.overrides.push_back({std::move(regex), true, scheme});
    }
    return read;
}

Result<Quantization> ReadMlx(const Config& config) {
    Quantization read;
    read.method = Method::kMlx;
    read.bits = 4;
    read.group = 64;
    WEFT_TRY(ReadMlxScheme(config, read));
    for (const auto& [name, value] : config.json().items()) {
        if (!value.is_object()) continue;  // false: an unquantized weight
        WEFT_ASSIGN(const Config own, config.Sub({name}));
        // A module without a mode is affine, as MLX's own default is, whatever the others are: the
        // router of an mxfp4 model has 8 bits.
        Scheme scheme{.method = Method::kMlx, .bits = 4, .group = 64};
        if (read.mode == MlxMode::kAffine) scheme = read;
        WEFT_TRY(ReadMlxScheme(own, scheme));
        read.modules.emplace(name, scheme);
    }
    return read;
}

Result<Quantization> ReadBitsAndBytes(const Config& config) {
    Quantization read;
    read.method = Method::kBitsAndBytes;
    WEFT_ASSIGN(const bool four, config.BoolOr({"load_in_4bit", "_load_in_4bit"}, false));
    WEFT_ASSIGN(const std::string type, config.StringOr({"bnb_4bit_quant_type"}, "fp4"));
    if (four && type != "nf4" && type != "fp4") {
        return RefusedQuantization(config, fmt::format("bitsandbytes' '{}'", Shown(type)));
    }
    read.bits = four ? 4 : 8;
    return read;
}

}  // namespace weft::model_files::hf
