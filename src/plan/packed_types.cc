#include "plan/packed_types.h"

#include <algorithm>

#include "tokenizer/regex.h"

namespace weft::plan {

using model_files::hf::Config;
using model_files::hf::Family;
using model_files::hf::Form;
using model_files::hf::Method;

namespace {

constexpr size_t kMostModuleBytes = 512;
constexpr int64_t kMostMatchNs = 10'000'000;

// compressed-tensors' "ignore" has whole names and "re:EXPRESSION" (matches at the start of a
// name); AWQ's list has parts of names; GPTQModel's "dynamic" has "-:EXPRESSION".
Result<std::vector<std::string>> LeftOut(const Config& config) {
    WEFT_ASSIGN(const Config inside, config.Sub({"quantization_config", "compression_config"}));
    WEFT_ASSIGN(std::vector<std::string> all, inside.Strings({"ignore", "modules_to_not_convert"}));
    WEFT_ASSIGN(const Config dynamic, inside.Sub({"dynamic"}));
    for (const auto& [pattern, value] : dynamic.json().items()) {
        if (pattern.starts_with("-:")) all.push_back("re:" + pattern.substr(2));
    }
    return all;
}

bool Matches(const std::string& expression, const std::string& module) {
    const auto regex = tokenizer::Regex::MakeForeign(expression);
    if (!regex.ok()) return false;
    tokenizer::RegexRun run(kMostModuleBytes, kMostMatchNs);
    tokenizer::RegexRun::Range found{};
    return run.Next(*regex, module, 0, found) && found.begin == 0;
}

}  // namespace

PackedTypes::PackedTypes(const Family& family, const Config& config, std::string_view text)
    : family_(family) {
    auto read = model_files::hf::ReadQuantization(config, text);
    const auto left_out = LeftOut(config);
    if (!read.ok() || !left_out.ok()) {
        note_ = fmt::format("{}. BF16 is assumed; a type behind the name, as :q8_0, says another",
                            (read.ok() ? left_out.error() : read.error()).message);
        return;
    }
    left_out_ = *left_out;
    // gpt-oss: its experts are always in MXFP4, even without a quantization_config.
    if (read->method == Method::kNone || read->method == Method::kMxfp4) return;
    is_packed_ = true;
    quantization_ = *std::move(read);
    if (model_files::hf::MemoryType(quantization_) != DType::kBF16) return;
    if (quantization_.any_order) {
        note_ =
            "the file's weights have groups of columns in any order (act-order): they are held "
            "as BF16, which is counted here; a type behind the name plans another";
        return;
    }
    note_ = fmt::format(
        "the file's {} weights take two bytes each in memory, as BF16, which is counted here; a "
        "type behind the name, as :q8_0, plans one of 'weft quantize'",
        quantization_.bits == 8 ? "8-bit" : "quantized");
}

// The folder's module: "model.layers.3.mlp.experts.0.up_proj" for "blk.3.ffn_up_exps.weight"; "":
// the tensor is not quantized.
std::string PackedTypes::ModuleOf(const std::string& tensor) const {
    if (!tensor.starts_with("blk.") || !tensor.ends_with(".weight")) return "";
    const size_t dot = tensor.find('.', 4);
    const std::string layer = tensor.substr(4, dot - 4);
    const std::string name =
        tensor.substr(dot + 1, tensor.size() - dot - 1 - std::string_view(".weight").size());
    const std::string begin = fmt::format("model.layers.{}.", layer);
    if (name == "attn_v_b") return begin + "self_attn.kv_b_proj";
    for (const auto& rule : RulesOf(family_)) {
        if (rule.gguf != name) continue;
        if (rule.form == Form::kRouter || rule.form == Form::kNorm) return "";
        std::string module = begin + rule.hf;
        const size_t star = module.find('*');
        if (star != module.npos) module.replace(star, 1, "0");
        return module;
    }
    // No rule maps the names of experts that a family's layer function reads. This is the name in
    // Step 3.5.
    const bool experts = name.starts_with("ffn_") && name.ends_with("_exps");
    return experts ? begin + "moe.up_proj" : "";
}

bool PackedTypes::IsLeftOut(const std::string& module) const {
    return std::ranges::any_of(left_out_, [&](const std::string& entry) {
        if (entry.starts_with("re:")) return Matches(entry.substr(3), module);
        return module.find(entry) != module.npos;
    });
}

std::optional<DType> PackedTypes::Of(const std::string& tensor, int64_t cols) const {
    const std::string module = is_packed_ ? ModuleOf(tensor) : "";
    if (module.empty() || IsLeftOut(module)) return std::nullopt;
    const model_files::hf::Scheme* scheme = quantization_.Of(module);
    if (scheme == nullptr) return std::nullopt;
    const DType type = model_files::hf::MemoryType(*scheme);
    if (type == DType::kBF16) return std::nullopt;
    const bool floats = type == DType::kNVFP4 || type == DType::kMXFP4;
    const int64_t block = Info(type).block_elements;
    const int64_t group = scheme->group == 0 || floats ? cols : scheme->group;
    // The folder's reader, too, converts weights with other group sizes to BF16.
    if (cols % block != 0 || group % block != 0) return std::nullopt;
    return type;
}

}  // namespace weft::plan
