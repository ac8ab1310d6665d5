#include "model_files/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bare_words.h"
#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "base/json.h"

namespace weft::model_files {
namespace {

constexpr uint64_t kMostGenerationBytes = 1 << 20;
constexpr int kWholeContext = 1 << 24;

struct SamplingRule {
    const char* gguf;  // null: the hint exists only in generation_config.json
    const char* hf;    // null: the hint exists only in GGUF
    const char* expected;
    bool (*holds)(double);
    void (*set)(SamplingHints&, double);
};

bool IsTokenCount(double value) {
    return value >= -1 && value <= kWholeContext && std::trunc(value) == value;
}

constexpr SamplingRule kSamplingRules[] = {
    {"general.sampling.temp", "temperature", "0 to 100",
     [](double v) { return v >= 0 && v <= 100; },
     [](SamplingHints& h, double v) { h.temperature = v; }},
    {"general.sampling.top_k", "top_k", "an integer from -1", IsTokenCount,
     [](SamplingHints& h, double v) { h.top_k = std::max(0, static_cast<int>(v)); }},
    {"general.sampling.top_p", "top_p", "more than 0, at most 1",
     [](double v) { return v > 0 && v <= 1; }, [](SamplingHints& h, double v) { h.top_p = v; }},
    {"general.sampling.min_p", "min_p", "0 to less than 1",
     [](double v) { return v >= 0 && v < 1; }, [](SamplingHints& h, double v) { h.min_p = v; }},
    {"general.sampling.penalty_repeat", "repetition_penalty", "more than 0, at most 100",
     [](double v) { return v > 1e-6 && v <= 100; },
     [](SamplingHints& h, double v) { h.repeat_penalty = v; }},
    // -1: the whole context.
    {"general.sampling.penalty_last_n", nullptr, "an integer from -1", IsTokenCount,
     [](SamplingHints& h, double v) {
         h.repeat_last = v < 0 ? kWholeContext : static_cast<int>(v);
     }},
    {nullptr, "typical_p", "more than 0, at most 1", [](double v) { return v > 0 && v <= 1; },
     [](SamplingHints& h, double v) { h.typical_p = v; }},
    {"general.sampling.xtc_probability", nullptr, "0 to 1",
     [](double v) { return v >= 0 && v <= 1; },
     [](SamplingHints& h, double v) { h.xtc_probability = v; }},
    {"general.sampling.xtc_threshold", nullptr, "0 to 1", [](double v) { return v >= 0 && v <= 1; },
     [](SamplingHints& h, double v) { h.xtc_threshold = v; }},
};

void PassOver(SamplingHints& hints, const char* key, const std::string& found,
              const char* expected) {
    hints.warnings.push_back(
        fmt::format("{}: ignoring '{}': it is {}; expected {}.", hints.file, key, found, expected));
}

void TakeHint(SamplingHints& hints, const SamplingRule& rule, const char* key, double value) {
    if (rule.holds(value)) return rule.set(hints, value);
    PassOver(hints, key, fmt::format("{}", value), rule.expected);
}

SamplingHints ReadSamplingKeys(const ModelSource& source) {
    SamplingHints hints;
    hints.file = source.name();
    for (const SamplingRule& rule : kSamplingRules) {
        if (rule.gguf == nullptr) continue;
        const MetaEntry* entry = source.meta().Find(rule.gguf);
        if (entry == nullptr) continue;
        const Result<double> value = source.meta().F64(rule.gguf);
        if (value.ok()) {
            // Converts a float32 back to the decimal number that it was written from.
            const bool narrow = entry->type == MetaType::kF32;
            TakeHint(hints, rule, rule.gguf,
                     narrow && std::isfinite(*value)
                         ? std::stod(fmt::format("{}", static_cast<float>(*value)))
                         : *value);
        } else {
            PassOver(hints, rule.gguf, "of type " + entry->TypeName(), "a number");
        }
    }
    return hints;
}

void ReadSamplingMembers(const nlohmann::json& config, SamplingHints& hints) {
    for (const SamplingRule& rule : kSamplingRules) {
        const auto found = rule.hf == nullptr ? config.end() : config.find(rule.hf);
        if (found == config.end() || found->is_null()) continue;
        if (found->is_number()) {
            TakeHint(hints, rule, rule.hf, found->get<double>());
        } else {
            PassOver(hints, rule.hf, std::string("of type ") + found->type_name(), "a number");
        }
    }
    const auto sample = config.find("do_sample");
    if (sample == config.end() || sample->is_null()) return;
    if (!sample->is_boolean()) {
        return PassOver(hints, "do_sample", std::string("of type ") + sample->type_name(),
                        "true or false");
    }
    if (!sample->get<bool>()) hints.temperature = 0;
}

}  // namespace

bool SamplingHints::any() const {
    return temperature || top_k || top_p || min_p || repeat_penalty || repeat_last || typical_p ||
           top_n_sigma || xtc_probability || xtc_threshold || dry_multiplier || dry_base ||
           dry_allowed;
}

SamplingHints ReadGenerationConfig(const std::string& folder) {
    SamplingHints hints;
    const std::string path = std::filesystem::path(folder) / "generation_config.json";
    if (!IsListed(path)) return hints;
    hints.file = path;
    const auto text = ReadModelText(path, kMostGenerationBytes);
    if (!text.ok()) {
        hints.warnings.push_back(text.error().message);
        return hints;
    }
    const auto config = ParseJsonText(WithoutBareWords(*text));
    if (!config.ok() || !config->is_object()) {
        hints.warnings.push_back(
            fmt::format("{}: ignoring the file: {}.", path,
                        config.ok() ? std::string("not a JSON object") : config.error().message));
        return hints;
    }
    ReadSamplingMembers(*config, hints);
    return hints;
}

SamplingHints ReadSamplingHints(const ModelSource& source) {
    return source.folder().empty() ? ReadSamplingKeys(source)
                                   : ReadGenerationConfig(source.folder());
}

void WriteSamplingKeys(const SamplingHints& hints, GgufWriter& writer) {
    const auto number = [&](const char* name, const std::optional<double>& value) {
        if (value) writer.F32(std::string("general.sampling.") + name, static_cast<float>(*value));
    };
    const auto count = [&](const char* name, const std::optional<int>& value) {
        if (value) writer.I32(std::string("general.sampling.") + name, *value);
    };
    number("temp", hints.temperature);
    count("top_k", hints.top_k);
    number("top_p", hints.top_p);
    number("min_p", hints.min_p);
    number("penalty_repeat", hints.repeat_penalty);
    count("penalty_last_n", hints.repeat_last);
    number("xtc_probability", hints.xtc_probability);
    number("xtc_threshold", hints.xtc_threshold);
}

nlohmann::json GenerationConfigJson(const SamplingHints& hints) {
    nlohmann::json json = nlohmann::json::object();
    // transformers rejects a temperature of 0; do_sample = false means the same.
    if (hints.temperature) json["do_sample"] = *hints.temperature > 0;
    if (hints.temperature && *hints.temperature > 0) json["temperature"] = *hints.temperature;
    if (hints.top_k) json["top_k"] = *hints.top_k;
    if (hints.top_p) json["top_p"] = *hints.top_p;
    if (hints.min_p) json["min_p"] = *hints.min_p;
    if (hints.typical_p) json["typical_p"] = *hints.typical_p;
    if (hints.repeat_penalty) json["repetition_penalty"] = *hints.repeat_penalty;
    return json;
}

}  // namespace weft::model_files
