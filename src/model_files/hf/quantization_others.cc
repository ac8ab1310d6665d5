// quantization_config of AutoRound, MLX and bitsandbytes.
#include <array>

#include "model_files/hf/quantization.h"

namespace weft::model_files::hf {
namespace {

Status ReadAutoRoundBits(const Config& config, Scheme& scheme) {
    WEFT_ASSIGN(const int64_t bits, config.IntOr({"bits"}, 1, 32, scheme.bits));
    const bool awq = scheme.method == Method::kAwq;
    if (bits != 4 && (awq || bits != 8) && bits < 16) {
        return RefusedQuantization(
            config, fmt::format("AutoRound of {} bits packed as {}", bits, awq ? "AWQ" : "GPTQ"));
    }
    WEFT_ASSIGN(const std::string type, config.StringOr({"data_type"}, "int"));
    if (type != "int" && bits < 16) {
        return RefusedQuantization(config, fmt::format("AutoRound's data_type '{}'", Shown(type)));
    }
    scheme.bits = static_cast<int>(bits);
    if (config.Has("group_size")) {
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

Result<Quantization> ReadAutoRound(const Config& config) {
    Quantization read;
    WEFT_ASSIGN(const std::string packing,
                config.StringOr({"packing_format"}, "auto_round:auto_gptq"));
    constexpr std::array<std::string_view, 2> kGptq = {"auto_round:auto_gptq", "auto_gptq"};
    constexpr std::array<std::string_view, 2> kAwq = {"auto_round:auto_awq", "auto_awq"};
    if (packing == kAwq[0] || packing == kAwq[1]) {
        read.method = Method::kAwq;
    } else if (packing == kGptq[0] || packing == kGptq[1]) {
        read.method = Method::kGptq;
        read.zero_plus_one = true;
    } else {
        return RefusedQuantization(config, fmt::format("AutoRound's packing '{}'", Shown(packing)));
    }
    WEFT_ASSIGN(const int64_t bits, config.NeedInt({"bits"}, 1, 32));
    read.bits = static_cast<int>(bits);
    WEFT_TRY(ReadAutoRoundBits(config, read));
    WEFT_ASSIGN(const Config extra, config.Sub({"extra_config"}));
    for (const auto& [name, value] : extra.json().items()) {
        if (value.is_null() || value.empty()) continue;
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
        Scheme scheme = read;
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
