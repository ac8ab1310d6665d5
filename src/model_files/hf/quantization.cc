#include "model_files/hf/quantization.h"

#include <algorithm>

#include "base/dangling_link.h"
#include "base/file_kind.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostBlockSide = 1 << 20;
constexpr std::string_view kSupported =
    "fp8, awq (gemm, 4 bits), gptq (2, 3, 4 and 8 bits), auto-round, compressed-tensors, modelopt "
    "(FP8, NVFP4, MXFP4, MXFP8, integers), bitsandbytes, Apple's MLX, mxfp4 (gpt-oss)";
constexpr size_t kMostModuleBytes = 512;
constexpr int64_t kMostMatchNs = 10'000'000;

Error Refused(const Config& config, std::string_view what) {
    return RefusedQuantization(config, what);
}

Result<Quantization> ReadAwq(const Config& config) {
    Quantization read;
    read.method = Method::kAwq;
    WEFT_ASSIGN(const std::string version, config.StringOr({"version"}, "gemm"));
    if (version != "gemm" && version != "GEMM") {
        return Refused(config, fmt::format("AWQ's layout '{}'", Shown(version)));
    }
    WEFT_ASSIGN(const int64_t bits, config.IntOr({"bits", "w_bit"}, 1, 32, 4));
    if (bits != 4) return Refused(config, fmt::format("AWQ of {} bits", bits));
    read.bits = 4;
    WEFT_ASSIGN(read.group, ReadGroupSize(config));
    return read;
}

// fallback 0: the key is required.
Result<int> GptqBits(const Config& config, int fallback) {
    WEFT_ASSIGN(const int64_t bits, fallback == 0 ? config.NeedInt({"bits"}, 1, 32)
                                                  : config.IntOr({"bits"}, 1, 32, fallback));
    if (bits != 8 && (bits < 2 || bits > 4)) {
        return Refused(config, fmt::format("GPTQ of {} bits", bits));
    }
    return static_cast<int>(bits);
}

Result<Quantization> ReadGptq(const Config& config, std::string_view text) {
    Quantization read;
    read.method = Method::kGptq;
    WEFT_ASSIGN(const std::string format, config.StringOr({"checkpoint_format"}, "gptq"));
    if (format != "gptq" && format != "gptq_v2") {
        return Refused(config, fmt::format("GPTQ's format '{}'", Shown(format)));
    }
    read.zero_plus_one = format == "gptq";
    WEFT_ASSIGN(read.bits, GptqBits(config, 0));
    WEFT_ASSIGN(read.group, ReadGroupSize(config));
    WEFT_ASSIGN(read.any_order, config.BoolOr({"desc_act"}, false));
    WEFT_ASSIGN(const Config dynamic, config.Sub({"dynamic"}));
    for (const std::string& pattern : KeysInOrder(dynamic, text)) {
        if (pattern.starts_with("-:") || dynamic.json()[pattern].empty()) continue;
        WEFT_ASSIGN(const Config own, dynamic.Sub({pattern}));
        Scheme scheme = read;
        WEFT_ASSIGN(scheme.bits, GptqBits(own, read.bits));
        if (own.Has("group_size")) {
            WEFT_ASSIGN(scheme.group, ReadGroupSize(own));
        }
        WEFT_ASSIGN(scheme.any_order, own.BoolOr({"desc_act"}, read.any_order));
        WEFT_ASSIGN(tokenizer::Regex regex,
                    ReadExpression(config, pattern.substr(pattern.starts_with("+:") ? 2 : 0)));
        read.overrides.push_back({std::move(regex), false, scheme});
    }
    return read;
}

Result<Quantization> ReadFp8(const Config& config) {
    Quantization read;
    read.method = Method::kFp8;
    read.bits = 8;
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

// The method of a configuration that does not name it, from a key that only one method has.
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

// mlx-lm writes group_size, bits and mode under 'quantization', and often again under
// 'quantization_config'. Empty: none.
Result<Config> MlxConfig(const Config& config) {
    for (const std::string_view key : {"quantization", "quantization_config"}) {
        WEFT_ASSIGN(const Config mlx, config.Sub({key}));
        const bool whole = key == "quantization";
        const bool named = mlx.Has("quant_method") && mlx.json()["quant_method"] != "mlx";
        const bool fits = whole ? mlx.Has("bits") || mlx.Has("group_size") || mlx.Has("mode")
                                : mlx.Has("bits") && mlx.Has("group_size");
        if (fits && !named && MethodByKeys(mlx).empty()) return mlx;
    }
    return Config();
}

Result<Quantization> ReadMxfp4() {
    Quantization read;
    read.method = Method::kMxfp4;
    read.bits = 4;
    read.group = 32;
    return read;
}

Result<Quantization> ReadByMethod(const Config& inside, const std::string& method,
                                  std::string_view text) {
    if (method.starts_with("modelopt")) return ReadModelOpt(inside);
    if (method == "awq") return ReadAwq(inside);
    if (method == "gptq") return ReadGptq(inside, text);
    if (method == "auto-round" || method == "auto_round") return ReadAutoRound(inside, text);
    if (method == "compressed-tensors") return ReadCompressed(inside);
    if (method == "bitsandbytes") return ReadBitsAndBytes(inside);
    if (method == "fp8") return ReadFp8(inside);
    if (method == "mxfp4") return ReadMxfp4();
    return Refused(inside, fmt::format("quant_method '{}'", Shown(method)));
}

// ---- Modules with schemes of their own ----------------------------------------------------------

bool Matches(const Override& one, const std::string& name) {
    if (name.size() > kMostModuleBytes) return false;
    tokenizer::RegexRun run(kMostModuleBytes, kMostMatchNs);
    tokenizer::RegexRun::Range found{};
    return run.Next(one.regex, name, 0, found) && (one.anywhere || found.begin == 0);
}

const Scheme* FindByName(const Quantization& all, const std::string& name,
                         const std::string& module_name) {
    const auto module = all.modules.find(name);
    if (module != all.modules.end()) return &module->second;
    // Expressions match from the start of the full name, including "model.".
    if (name.starts_with("layers.") && !module_name.starts_with("layers.")) return nullptr;
    const auto matches = [&](const Override& one) { return Matches(one, name); };
    const auto found = std::ranges::find_if(all.overrides, matches);
    return found == all.overrides.end() ? nullptr : &found->scheme;
}

// The module's name with each prefix that text models have, its own name first.
std::vector<std::string> SpellingsOf(const std::string& module) {
    std::vector<std::string> names = {module};
    const size_t layers = module.find("layers.");
    if (layers == module.npos) return names;
    for (const char* prefix : {"model.", "model.language_model.", "language_model.model.", ""}) {
        names.push_back(prefix + module.substr(layers));
    }
    return names;
}

// "a.gate_up_proj" for "a.up_proj"; "": not part of a fused module.
std::string FusedName(const std::string& module) {
    constexpr struct {
        std::string_view part, fused;
    } kFused[] = {{"q_proj", "qkv_proj"},
                  {"k_proj", "qkv_proj"},
                  {"v_proj", "qkv_proj"},
                  {"gate_proj", "gate_up_proj"},
                  {"up_proj", "gate_up_proj"}};
    const size_t last = module.rfind('.') + 1;  // 0 if there is no dot
    for (const auto& [part, fused] : kFused) {
        if (module.substr(last) == part) return module.substr(0, last) + std::string(fused);
    }
    return "";
}

}  // namespace

DType MemoryType(const Scheme& scheme) {
    const DType integers = scheme.bits <= 4 ? DType::kW4 : DType::kW8;
    const bool four = scheme.bits == 4;
    // FP8 needs one scale per 64 columns.
    const int64_t cols = scheme.block_cols != 0 ? scheme.block_cols : scheme.group;
    const DType eight = cols % 64 == 0 ? DType::kFP8 : DType::kBF16;
    switch (scheme.method) {
        case Method::kNone: return DType::kBF16;
        case Method::kFp8: return eight;
        case Method::kMxfp4: return DType::kMXFP4;
        case Method::kAwq: return DType::kW4;
        case Method::kModelOpt:
            if (!four) return eight;
            return scheme.group == 32 ? DType::kMXFP4 : DType::kNVFP4;
        case Method::kBitsAndBytes: return four ? DType::kBF16 : DType::kW8;
        case Method::kGptq: return scheme.any_order ? DType::kBF16 : integers;
        case Method::kCompressed:
            if (!scheme.floats) return scheme.any_order ? DType::kBF16 : integers;
            if (!four) return eight;
            return scheme.group == 32 ? DType::kMXFP4 : DType::kNVFP4;
        case Method::kMlx: break;
    }
    switch (scheme.mode) {
        case MlxMode::kMxfp4: return DType::kMXFP4;
        case MlxMode::kMxfp8: return DType::kBF16;
        case MlxMode::kNvfp4: return DType::kNVFP4;
        case MlxMode::kAffine: break;
    }
    if (scheme.bits <= 4) return DType::kQ4_1;
    return scheme.bits == 5 ? DType::kQ5_1 : DType::kBF16;
}

Error RefusedQuantization(const Config& config, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} is not supported. Supported: {}. Get the model's original folder, or "
                     "a GGUF file.",
                     config.where(), what, kSupported);
}

std::vector<std::string> KeysInOrder(const Config& object, std::string_view text) {
    std::map<std::string, std::string, std::less<>> left;  // by the key's JSON
    for (const auto& [key, value] : object.json().items()) left.emplace(Json(key).dump(), key);
    std::vector<std::string> keys;
    const auto take = [&](auto found) {
        keys.push_back(std::move(found->second));
        return left.erase(found);
    };
    for (size_t begin = text.find('"'); begin != text.npos && !left.empty();) {
        size_t end = begin + 1;
        while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
        const auto found = left.find(text.substr(begin, end + 1 - begin));
        if (found != left.end()) take(found);
        begin = text.find('"', std::min(end + 1, text.size()));
    }
    for (auto at = left.begin(); at != left.end();) at = take(at);
    return keys;
}

Result<int64_t> ReadGroupSize(const Config& config) {
    WEFT_ASSIGN(const int64_t group, config.IntOr({"group_size", "q_group_size"}, -1, 1 << 20, -1));
    return group <= 0 ? int64_t{0} : group;
}

Result<tokenizer::Regex> ReadExpression(const Config& config, std::string_view expression) {
    Result<tokenizer::Regex> regex = tokenizer::Regex::MakeForeign(expression);
    if (regex.ok()) return regex;
    return MakeError(ErrorCode::kUnsupported, "{}: the expression '{}': {}", config.where(),
                     Shown(expression), regex.error().message);
}

const Scheme* Quantization::Of(const std::string& module) const {
    if (modules.empty() && overrides.empty() && classes.empty()) return this;
    for (const std::string& name : SpellingsOf(module)) {
        if (const Scheme* found = FindByName(*this, name, module)) return found;
        const std::string fused = FusedName(name);
        if (fused.empty()) continue;
        if (const Scheme* found = FindByName(*this, fused, module)) return found;
    }
    const auto of_class = classes.find(module.ends_with("embed_tokens") ? "Embedding" : "Linear");
    if (of_class != classes.end()) return &of_class->second;
    return only_named ? nullptr : this;
}

Result<Quantization> ReadQuantization(const Config& config, std::string_view text) {
    WEFT_ASSIGN(const Config inside, config.Sub({"quantization_config", "compression_config"}));
    WEFT_ASSIGN(const Config mlx, MlxConfig(config));
    if (!mlx.json().empty()) return ReadMlx(mlx);
    if (inside.json().empty()) return Quantization{};
    WEFT_ASSIGN(std::string method, inside.StringOr({"quant_method"}, ""));
    if (method.empty()) method = MethodByKeys(inside);
    if (method.empty()) return inside.Corrupt("quant_method", "the name of a quantization method");
    return ReadByMethod(inside, method, text);
}

Result<Quantization> ReadQuantizationFile(const std::string& folder) {
    constexpr struct {
        const char *name, *method;
    } kFiles[] = {{"hf_quant_config.json", "modelopt"},
                  {"quantize_config.json", "gptq"},
                  {"quant_config.json", "awq"}};
    for (const auto& [name, usual] : kFiles) {
        const std::string path = folder + "/" + name;
        if (!IsListed(path)) continue;
        WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostConfigBytes));
        WEFT_ASSIGN(const Config config, Config::Parse(text, path));
        const bool nested = config.Has("quantization");
        WEFT_ASSIGN(const Config inside, config.Sub({"quantization"}));
        const std::string_view method = usual;
        if (method == "modelopt" && !inside.Has("quant_algo")) continue;
        WEFT_ASSIGN(const std::string named, config.StringOr({"quant_method"}, usual));
        WEFT_ASSIGN(Quantization read, ReadByMethod(nested ? inside : config, named, text));
        read.file_text = text;
        return read;
    }
    return Quantization{};
}

}  // namespace weft::model_files::hf
