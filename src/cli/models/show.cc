// weft show: summarizes a model in a few lines. Reads headers, no weights.
#include <algorithm>

#include "base/printable.h"
#include "chat/chat.h"
#include "cli/commands.h"
#include "engine/sampling/sampler_defaults.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "model_files/read_tokenizer.h"

namespace weft::cli {
namespace {

constexpr const char* kShowFooter =
    "'weft inspect MODEL' lists all metadata and tensors.\n\n"
    "Examples:\n"
    "  weft show model.gguf\n"
    "  weft show qwen3:8b --json";

struct ShowFlags {
    std::string model;
    bool json = false, pull = false;
};

std::string TextOr(const model_files::Metadata& meta, const std::string& key) {
    auto text = meta.StringOr(key, "");
    return text.ok() ? std::move(text).value() : std::string();
}

// The types, sorted by their share of bytes, largest first.
std::vector<std::pair<std::string, uint64_t>> Types(const model_files::ModelSource& source) {
    const auto bytes = source.BytesByType();
    std::vector<std::pair<std::string, uint64_t>> types(bytes.begin(), bytes.end());
    std::ranges::stable_sort(types, std::greater(), [](const auto& type) { return type.second; });
    return types;
}

// "own", "by its vocabulary" or "none".
std::string TemplateKind(const model_files::Metadata& meta,
                         const Result<std::unique_ptr<tokenizer::Tokenizer>>& tokenizer) {
    if (!TextOr(meta, "tokenizer.chat_template").empty()) return "own";
    if (!tokenizer.ok()) return "none";
    return chat::Chat::Load(meta, **tokenizer).ok() ? "by its vocabulary" : "none";
}

Json Facts(const model_files::ModelSource& source) {
    const model_files::Metadata& meta = source.meta();
    const auto hyper = model::ReadHyper(source);
    const auto tokenizer = model_files::LoadTokenizer(source);
    Json facts{{"model", source.name()}};
    const auto add = [&](const char* name, const std::string& text) {
        if (!text.empty()) facts[name] = text;
    };
    add("name", TextOr(meta, "general.name"));
    add("architecture", TextOr(meta, "general.architecture"));
    facts["supported"] = hyper.ok();
    if (!hyper.ok()) facts["why_not"] = hyper.error().message;
    facts["parameters"] = source.Parameters();
    facts["bytes"] = source.TotalBytes();
    Json types = Json::object();
    for (const auto& [type, bytes] : Types(source)) types[type] = bytes;
    facts["quantization"] = types;
    if (hyper.ok()) {
        facts["context"] = hyper->context;
        facts["layers"] = hyper->layers;
        facts["hidden"] = hyper->hidden;
        facts["vocabulary"] = hyper->vocab;
        if (hyper->moe.experts > 0) {
            facts["experts"] = hyper->moe.experts;
            facts["experts_used"] = hyper->moe.used;
        }
    }
    facts["chat_template"] = TemplateKind(meta, tokenizer);
    if (tokenizer.ok()) add("tokenizer", (*tokenizer)->data().model);
    if (tokenizer.ok()) add("pre_tokenizer", (*tokenizer)->data().pre);
    if (!tokenizer.ok()) facts["tokenizer_error"] = tokenizer.error().message;
    const model_files::SamplingHints hints = engine::HintsOf(source);
    if (hints.any()) {
        engine::SamplerOptions sampler = engine::DefaultSampling();
        engine::Apply(hints, sampler);
        facts["sampling"] = engine::SamplingText(sampler);
    }
    add("license", TextOr(meta, "general.license"));
    return facts;
}

std::string CountText(double count) {
    if (count >= 1e9) return fmt::format("{:.2f} B", count * 1e-9);
    return fmt::format("{:.1f} M", count * 1e-6);
}

std::string QuantizationText(const Json& types) {
    std::string text;
    for (const auto& [type, bytes] : types.items()) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", type,
                            BytesText(bytes.get<uint64_t>()));
    }
    return text;
}

std::string FactText(const std::string& name, const Json& value) {
    if (name == "parameters") return CountText(value.get<double>());
    if (name == "bytes") return BytesText(value.get<uint64_t>());
    if (name == "quantization") return QuantizationText(value);
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_string()) return Printable(value.get<std::string>());
    return value.dump();
}

Status Show(ShowFlags& flags) {
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.model));
    const Json facts = Facts(*source);
    if (flags.json) {
        PrintJson(facts);
        return {};
    }
    for (const auto& [name, value] : facts.items()) {
        std::string label = name;
        std::ranges::replace(label, '_', ' ');
        PrintOut("{:<16} {}\n", label, FactText(name, value));
    }
    return {};
}

}  // namespace

void AddShow(const Command& app, int& status) {
    auto flags = std::make_shared<ShowFlags>();
    const Command command = app.AddCommand(
        "show", "Show architecture, size, context, template and license of a model", kShowFooter);
    AddModel(command, flags->model, flags->pull);
    SetJsonCallback(command, flags, status, Show);
}

}  // namespace weft::cli
