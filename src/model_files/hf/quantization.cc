#include "model_files/hf/quantization.h"

#include <filesystem>

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostBlockSide = 1 << 20;
constexpr std::string_view kSupported =
    "fp8, awq (gemm, 4 bits), gptq (4 and 8 bits), compressed-tensors (pack-quantized, 4 and 8 "
    "bits), mxfp4 (gpt-oss)";

Error Refused(const Config& config, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} is not supported. Supported: {}. Get the model's own folder, or a "
                     "GGUF file of it.",
                     config.where(), what, kSupported);
}

// -1 and absent: a whole row.
Result<int64_t> GroupSize(const Config& config) {
    WEFT_ASSIGN(const int64_t group, config.IntOr({"group_size", "q_group_size"}, -1, 1 << 20, -1));
    return group <= 0 ? int64_t{0} : group;
}

Result<Quantization> ReadAwq(const Config& config) {
    Quantization read{.method = Method::kAwq};
    WEFT_ASSIGN(const std::string version, config.StringOr({"version"}, "gemm"));
    if (version != "gemm" && version != "GEMM") {
        return Refused(config, fmt::format("AWQ's layout '{}'", Shown(version)));
    }
    WEFT_ASSIGN(const int64_t bits, config.IntOr({"bits", "w_bit"}, 1, 32, 4));
    if (bits != 4) return Refused(config, fmt::format("AWQ of {} bits", bits));
    read.bits = 4;
    WEFT_ASSIGN(read.group, GroupSize(config));
    return read;
}

Result<Quantization> ReadGptq(const Config& config) {
    Quantization read{.method = Method::kGptq};
    WEFT_ASSIGN(const std::string format, config.StringOr({"checkpoint_format"}, "gptq"));
    if (format != "gptq" && format != "gptq_v2") {
        return Refused(config, fmt::format("GPTQ's format '{}'", Shown(format)));
    }
    read.zero_plus_one = format == "gptq";
    WEFT_ASSIGN(const int64_t bits, config.NeedInt({"bits"}, 1, 32));
    if (bits != 4 && bits != 8) return Refused(config, fmt::format("GPTQ of {} bits", bits));
    read.bits = static_cast<int>(bits);
    WEFT_ASSIGN(read.group, GroupSize(config));
    WEFT_ASSIGN(read.any_order, config.BoolOr({"desc_act"}, false));
    WEFT_ASSIGN(const Config dynamic, config.Sub({"dynamic"}));
    for (const auto& [pattern, overrides] : dynamic.json().items()) {
        if (pattern.starts_with("-:") || overrides.empty()) continue;
        return Refused(config, "GPTQ with layers of their own settings ('dynamic')");
    }
    return read;
}

// What one of config_groups says.
Result<Quantization> ReadGroup(const Config& group) {
    Quantization read{.method = Method::kCompressed};
    WEFT_ASSIGN(const Config weights, group.Sub({"weights"}));
    WEFT_ASSIGN(const Config inputs, group.Sub({"input_activations"}));
    WEFT_ASSIGN(const std::string type, weights.StringOr({"type"}, "int"));
    WEFT_ASSIGN(const int64_t bits, weights.NeedInt({"num_bits"}, 1, 32));
    WEFT_ASSIGN(const std::string strategy, weights.StringOr({"strategy"}, "group"));
    WEFT_ASSIGN(const std::string order,
                weights.Has("actorder") && weights.json()["actorder"].is_boolean()
                    ? Result<std::string>("group")
                    : weights.StringOr({"actorder"}, ""));
    if (type != "int" || (bits != 4 && bits != 8) || !inputs.json().empty()) {
        return Refused(
            group, fmt::format("compressed-tensors with weights of {} {} bits{}", Shown(type), bits,
                               inputs.json().empty() ? "" : " and quantized inputs"));
    }
    if (strategy != "group" && strategy != "channel") {
        return Refused(group, fmt::format("compressed-tensors by '{}'", Shown(strategy)));
    }
    read.bits = static_cast<int>(bits);
    if (strategy == "group") {
        WEFT_ASSIGN(read.group, GroupSize(weights));
    }
    read.any_order = order == "group";
    return read;
}

Result<Quantization> ReadCompressed(const Config& config) {
    WEFT_ASSIGN(const std::string format, config.StringOr({"format"}, ""));
    if (format != "pack-quantized") {
        return Refused(config, fmt::format("compressed-tensors' format '{}'", Shown(format)));
    }
    WEFT_ASSIGN(const Config groups, config.Sub({"config_groups"}));
    if (groups.json().empty()) return config.Corrupt("config_groups", "one group at least");
    std::optional<Quantization> first;
    for (const auto& [name, value] : groups.json().items()) {
        if (value.is_null()) continue;
        WEFT_ASSIGN(const Config group, groups.Sub({name}));
        WEFT_ASSIGN(const Quantization read, ReadGroup(group));
        if (first && (read.bits != first->bits || read.group != first->group)) {
            return Refused(config, "compressed-tensors with groups that differ");
        }
        first = read;
    }
    if (!first) return config.Corrupt("config_groups", "one group at least");
    return *first;
}

Result<Quantization> ReadFp8(const Config& config) {
    Quantization read{.method = Method::kFp8, .bits = 8};
    WEFT_ASSIGN(const std::string format, config.StringOr({"fmt"}, "e4m3"));
    if (format != "e4m3") return Refused(config, fmt::format("fp8 of '{}'", Shown(format)));
    WEFT_ASSIGN(const std::vector<int64_t> block, config.Ints({"weight_block_size"}));
    if (block.empty()) return read;
    const auto good = [](int64_t side) { return side >= 1 && side <= kMostBlockSide; };
    if (block.size() != 2 || !good(block[0]) || !good(block[1])) {
        return config.Corrupt("weight_block_size",
                              fmt::format("two numbers from 1 to {}", kMostBlockSide));
    }
    read.block_rows = block[0];
    read.block_cols = block[1];
    return read;
}

// The method of a configuration that doesn't name it, by the keys that only one has.
std::string MethodByKeys(const Config& config) {
    constexpr struct {
        std::string_view key, method;
    } kKeys[] = {{"load_in_4bit", "bitsandbytes"},
                 {"load_in_8bit", "bitsandbytes"},
                 {"_load_in_4bit", "bitsandbytes"},
                 {"_load_in_8bit", "bitsandbytes"},
                 {"bnb_4bit_quant_type", "bitsandbytes"},
                 {"quant_algo", "modelopt"},
                 {"w_bit", "awq"},
                 {"zero_point", "awq"},
                 {"desc_act", "gptq"},
                 {"damp_percent", "gptq"},
                 {"sym", "gptq"},
                 {"config_groups", "compressed-tensors"}};
    for (const auto& [key, method] : kKeys) {
        if (config.Has(key)) return std::string(method);
    }
    return "";
}

// Folders of mlx-lm say group_size, bits and mode under 'quantization', and often the same under
// 'quantization_config'.
Status RefuseMlx(const Config& config) {
    for (const std::string_view key : {"quantization", "quantization_config"}) {
        WEFT_ASSIGN(const Config mlx, config.Sub({key}));
        const bool whole = key == "quantization";
        const bool named = mlx.Has("quant_method") && mlx.json()["quant_method"] != "mlx";
        const bool fits = whole ? mlx.Has("bits") || mlx.Has("group_size") || mlx.Has("mode")
                                : mlx.Has("bits") && mlx.Has("group_size");
        if (!fits || named || !MethodByKeys(mlx).empty()) continue;
        const std::string bits = mlx.Has("bits") ? Shown(mlx.json()["bits"].dump()) + " bits" : "";
        const std::string mode = mlx.Has("mode") ? Shown(mlx.json()["mode"].dump()) : "";
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a quantized model for Apple's MLX ({}{}{}), whose layout is not "
                         "supported. Get the model's own folder, or a GGUF file of it",
                         mlx.where(), bits, bits.empty() || mode.empty() ? "" : ", ", mode);
    }
    return {};
}

Result<Quantization> ReadByMethod(const Config& inside, const std::string& method) {
    if (method == "modelopt") {
        WEFT_ASSIGN(const std::string algorithm, inside.StringOr({"quant_algo"}, "?"));
        return Refused(inside, fmt::format("NVIDIA ModelOpt's '{}'", Shown(algorithm)));
    }
    if (method == "awq") return ReadAwq(inside);
    if (method == "gptq") return ReadGptq(inside);
    if (method == "compressed-tensors") return ReadCompressed(inside);
    if (method == "fp8") return ReadFp8(inside);
    if (method == "mxfp4") return Quantization{.method = Method::kMxfp4, .bits = 4, .group = 32};
    return Refused(inside, fmt::format("quant_method '{}'", Shown(method)));
}

}  // namespace

Result<Quantization> ReadQuantization(const Config& config) {
    WEFT_ASSIGN(const Config inside, config.Sub({"quantization_config", "compression_config"}));
    WEFT_TRY(RefuseMlx(config));
    if (inside.json().empty()) return Quantization{};
    WEFT_ASSIGN(std::string method, inside.StringOr({"quant_method"}, ""));
    if (method.empty()) method = MethodByKeys(inside);
    if (method.empty()) return inside.Corrupt("quant_method", "the name of a quantization");
    return ReadByMethod(inside, method);
}

Result<Quantization> ReadQuantizationFile(const std::string& folder) {
    constexpr struct {
        const char *name, *method;
    } kFiles[] = {{"hf_quant_config.json", "modelopt"},
                  {"quantize_config.json", "gptq"},
                  {"quant_config.json", "awq"}};
    for (const auto& [name, usual] : kFiles) {
        const std::string path = folder + "/" + name;
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) continue;
        WEFT_ASSIGN(const Config config, Config::Read(path));
        const bool nested = config.Has("quantization");
        WEFT_ASSIGN(const Config inside, config.Sub({"quantization"}));
        const std::string_view method = usual;
        if (method == "modelopt" && !inside.Has("quant_algo")) continue;
        WEFT_ASSIGN(const std::string named, config.StringOr({"quant_method"}, usual));
        return ReadByMethod(nested ? inside : config, named);
    }
    return Quantization{};
}

}  // namespace weft::model_files::hf
