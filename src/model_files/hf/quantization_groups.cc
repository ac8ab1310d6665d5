// quantization_config of compressed-tensors and of NVIDIA's ModelOpt.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "model_files/hf/quantization.h"

namespace weft::model_files::hf {
namespace {

// Whether `target` is the name of a torch class, not of a module.
bool IsClassName(std::string_view target) {
    if (target.empty() || target[0] < 'A' || target[0] > 'Z') return false;
    return target.find('.') == target.npos;
}

Status CheckGroupType(const Config& group, std::string_view type, int64_t bits,
                      std::string_view strategy) {
    const bool good = (type == "int" && (bits == 4 || bits == 8)) ||
                      (type == "float" && (bits == 4 || bits == 8));
    if (!good) {
        return RefusedQuantization(
            group, fmt::format("compressed-tensors with weights of {} {} bits", Shown(type), bits));
    }
    constexpr std::array<std::string_view, 5> kStrategies = {"tensor", "channel", "group", "block",
                                                             "tensor_group"};
    if (std::ranges::find(kStrategies, strategy) != kStrategies.end()) return {};
    return RefusedQuantization(group, fmt::format("compressed-tensors by '{}'", Shown(strategy)));
}

// The scheme of an entry of config_groups; nullopt: it quantizes no weights.
Result<std::optional<Scheme>> ReadGroup(const Config& group) {
    WEFT_ASSIGN(const Config weights, group.Sub({"weights"}));
    if (weights.json().empty()) return std::optional<Scheme>();
    Scheme read{.method = Method::kCompressed};
    WEFT_ASSIGN(const std::string type, weights.StringOr({"type"}, "int"));
    WEFT_ASSIGN(const int64_t bits, weights.NeedInt({"num_bits"}, 1, 32));
    WEFT_ASSIGN(const std::string strategy, weights.StringOr({"strategy"}, "group"));
    WEFT_ASSIGN(const std::string order,
                weights.Has("actorder") && weights.json()["actorder"].is_boolean()
                    ? Result<std::string>("group")
                    : weights.StringOr({"actorder"}, ""));
    WEFT_TRY(CheckGroupType(group, type, bits, strategy));
    read.bits = static_cast<int>(bits);
    read.floats = type == "float";
    WEFT_ASSIGN(const bool symmetric, weights.BoolOr({"symmetric"}, true));
    read.zeros = !symmetric && !read.floats;
    if (strategy == "group" || strategy == "tensor_group") {
        WEFT_ASSIGN(read.group, ReadGroupSize(weights));
    }
    if (strategy == "block") {
        WEFT_ASSIGN(const std::vector<int64_t> block, weights.Ints({"block_structure"}));
        const auto good = [](int64_t side) { return side >= 1 && side <= 1 << 20; };
        if (block.size() != 2 || !good(block[0]) || !good(block[1])) {
            return weights.Corrupt("block_structure", "two numbers from 1 to 1048576");
        }
        read.block_rows = block[0];
        read.block_cols = block[1];
    }
    read.any_order = order == "group" || order == "dynamic";
    return std::optional<Scheme>(read);
}

constexpr std::array<std::string_view, 9> kFormats = {
    "pack-quantized",  "int-quantized",        "float-quantized",
    "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
    "mxfp8-quantized", "mixed-precision",      "dense"};

Status CheckFormat(const Config& config, bool needed) {
    WEFT_ASSIGN(const std::string format, config.StringOr({"format"}, ""));
    if (format.empty() && !needed) return {};
    if (std::ranges::find(kFormats, format) != kFormats.end()) return {};
    return RefusedQuantization(config,
                               fmt::format("compressed-tensors' format '{}'", Shown(format)));
}

// Refuses settings that change a layer's result beyond its weights.
Status RefuseTransforms(const Config& config) {
    WEFT_ASSIGN(const Config sparsity, config.Sub({"sparsity_config"}));
    WEFT_ASSIGN(const std::string sparse, sparsity.StringOr({"format"}, "dense"));
    if (sparse != "dense") {
        return RefusedQuantization(
            config, fmt::format("compressed-tensors' sparsity format '{}'", Shown(sparse)));
    }
    WEFT_ASSIGN(const Config transforms, config.Sub({"transform_config"}));
    WEFT_ASSIGN(const Config groups, transforms.Sub({"config_groups"}));
    if (groups.json().empty()) return {};
    return RefusedQuantization(config, "compressed-tensors with a 'transform_config'");
}

// expressions: those of all groups, which are tried in the order of their texts.
Status AddTargets(const Config& group, const Scheme& scheme, Quantization& read,
                  std::multimap<std::string, Override>& expressions) {
    WEFT_ASSIGN(const std::vector<std::string> targets, group.Strings({"targets"}));
    for (const std::string& target : targets) {
        if (target.starts_with("re:")) {
            WEFT_ASSIGN(tokenizer::Regex regex, ReadExpression(group, target.substr(3)));
            expressions.emplace(target, Override{std::move(regex), false, scheme});
        } else if (IsClassName(target)) {
            read.classes.emplace(target, scheme);
        } else {
            read.modules.emplace(target, scheme);
        }
    }
    return {};
}

}  // namespace

Result<Quantization> ReadCompressed(const Config& config) {
    WEFT_TRY(CheckFormat(config, true));
    WEFT_TRY(RefuseTransforms(config));
    WEFT_ASSIGN(const Config groups, config.Sub({"config_groups"}));
    if (groups.json().empty()) return config.Corrupt("config_groups", "at least one group");
    Quantization read;
    std::multimap<std::string, Override> expressions;
    bool differ = false;
    for (const auto& [name, value] : groups.json().items()) {
        if (value.is_null()) continue;
        WEFT_ASSIGN(const Config group, groups.Sub({name}));
        WEFT_TRY(CheckFormat(group, false));
        WEFT_ASSIGN(const std::optional<Scheme> scheme, ReadGroup(group));
        if (!scheme) continue;
        const Scheme& first = read;
        differ = differ || (read.method != Method::kNone && *scheme != first);
        if (read.method == Method::kNone) static_cast<Scheme&>(read) = *scheme;
        WEFT_TRY(AddTargets(group, *scheme, read, expressions));
    }
    for (auto& [text, one] : expressions) read.overrides.push_back(std::move(one));
    if (read.method == Method::kNone) {
        return config.Corrupt("config_groups", "at least one group with weights");
    }
    read.only_named = differ;
    if (differ) return read;
    read.modules.clear();  // the tensors show which modules are quantized
    read.overrides.clear();
    read.classes.clear();
    return read;
}

// ModelOpt's algorithms differ in their tensors, which identify the algorithm module by module.
Result<Quantization> ReadModelOpt(const Config& config) {
    // Only the KV cache or activations are quantized.
    const bool none = config.Names("quant_algo") && !config.Has("quant_algo");
    WEFT_ASSIGN(const std::string algorithm, config.StringOr({"quant_algo"}, "?"));
    if (none) return Quantization{};
    constexpr std::array<std::string_view, 13> kAlgorithms = {"FP8",
                                                              "FP8_PER_CHANNEL_PER_TOKEN",
                                                              "FP8_PB_WO",
                                                              "NVFP4",
                                                              "NVFP4_AWQ",
                                                              "W4A16_NVFP4",
                                                              "W4A8_NVFP4_FP8",
                                                              "W4A8_MXFP4_FP8",
                                                              "MXFP8",
                                                              "W4A16_AWQ",
                                                              "W8A16",
                                                              "W8A8_SQ_PER_CHANNEL",
                                                              "MIXED_PRECISION"};
    const auto known = [&](const std::string& name) {
        return std::ranges::find(kAlgorithms, name) != kAlgorithms.end();
    };
    const auto refused = [&](const std::string& name) {
        return RefusedQuantization(config, fmt::format("NVIDIA ModelOpt's '{}'", Shown(name)));
    };
    if (!known(algorithm)) return refused(algorithm);
    WEFT_ASSIGN(const Config layers, config.Sub({"quantized_layers"}));
    for (const auto& [name, value] : layers.json().items()) {
        WEFT_ASSIGN(const Config layer, layers.Sub({name}));
        WEFT_ASSIGN(const std::string own, layer.StringOr({"quant_algo"}, algorithm));
        if (!known(own)) return refused(own);
    }
    Quantization read;
    read.method = Method::kModelOpt;
    if (algorithm.find("MXFP") != algorithm.npos) read.group = 32;
    read.bits = algorithm.starts_with("W4") || algorithm.starts_with("NVFP4") ? 4 : 8;
    return read;
}

}  // namespace weft::model_files::hf
