#include "cli/model_names.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "cli/output.h"
#include "cli/pull_model.h"
#include "hub/cache.h"
#include "hub/short_names.h"
#include "hub/spec.h"
#include "plan/names.h"
#include "plan/shapes.h"

namespace weft::cli {
namespace {

constexpr const char* kUsualType = "Q4_K_M";

// A name alone: no path, no repository, no file.
std::optional<plan::ShapeWord> PlannedName(const std::string& word) {
    std::error_code ignored;
    const bool other = word.empty() || word[0] == '.' || word[0] == '~' ||
                       word.find('/') != word.npos || word.starts_with("synthetic:") ||
                       word.ends_with(".gguf") || word.ends_with(".json") ||
                       word.ends_with(".safetensors");
    if (other || std::filesystem::exists(word, ignored)) return std::nullopt;
    return plan::FindShape(word);
}

// That of the short name which means the same model; an empty owner: none does.
hub::RepoSpec RepositoryOf(const plan::ShapeWord& named) {
    for (const hub::ShortName& name : hub::ShortNames()) {
        const auto its = plan::FindShape(name.name);
        if (!its || its->model != named.model) continue;
        const auto spec = hub::ParseSpec(name.model);
        if (spec.ok()) return *spec;
    }
    return {};
}

std::string UpperCase(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
}
std::string LowerCase(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

// By its name.
bool IsRepositoryOfGgufs(const std::string& word) {
    std::error_code ignored;
    return word.find('/') != word.npos && UpperCase(word).find("GGUF") != word.npos &&
           !std::filesystem::exists(word, ignored);
}

}  // namespace

std::string SpecOfModel(const std::string& word) {
    const std::string meant = hub::MeantBy(word);
    if (hub::IsSpec(meant)) return meant;
    const auto named = PlannedName(word);
    if (!named) return {};
    hub::RepoSpec spec = RepositoryOf(*named);
    if (spec.owner.empty()) return {};
    if (!named->type.empty()) spec.what = UpperCase(named->type);
    return spec.Text();
}

bool IsPlannedName(const std::string& word) {
    return PlannedName(word).has_value();
}

Result<std::string> NeedSpec(const std::string& word) {
    std::string spec = SpecOfModel(word);
    if (!spec.empty()) return spec;
    if (PlannedName(word)) {
        return MakeError(ErrorCode::kNotFound,
                         "'{}': 'weft plan' knows this model, but Weft knows no repository of it. "
                         "Give one, as OWNER/NAME[:TYPE], or a file",
                         word);
    }
    return MakeError(ErrorCode::kUsage,
                     "'{}' is not a model of the Hub; expected [hf:]OWNER/NAME[:TYPE], a short "
                     "name, or a name that 'weft plan' takes.{}",
                     word, hub::ShortNameHint(word));
}

Status FindModel(std::string& model, bool pull) {
    const auto meant = NeedSpec(model);
    if (!meant.ok()) {
        // A word that is no name is opened as a path.
        const bool is_name = meant.error().code == ErrorCode::kNotFound;
        return pull || is_name ? Status(meant.error()) : Status();
    }
    WEFT_ASSIGN(const hub::RepoSpec spec, hub::ParseSpec(*meant));
    WEFT_ASSIGN(hub::Config config, hub::ConfigFromEnvironment());
    const auto cached = hub::FindCached(config, spec);
    if (!cached.ok() && !pull) {
        // Words of the Hub get their error where the model is opened.
        if (hub::MeantBy(model) != model || hub::IsSpec(model)) return {};
        return MakeError(cached.error().code, "{}: no file or folder of that name here; as {}",
                         model, cached.error().message);
    }
    model = *meant;
    if (cached.ok()) return {};
    config.stop = CatchInterrupts();
    WEFT_ASSIGN([[maybe_unused]] const hub::Pulled pulled, PullShown(config, spec));
    return {};
}

Status FindDraft(std::string& model, bool pull) {
    if (model.empty()) return {};
    return FindModel(model, pull && !SpecOfModel(model).empty());
}

std::string WithUsualType(const std::string& word) {
    const auto named = IsRepositoryOfGgufs(word) ? plan::FindShape(word) : PlannedName(word);
    if (!named || !named->type.empty()) return word;
    const auto own = plan::OpenShape(named->name);
    if (!own.ok() || (*own)->MainType() != "BF16") return word;
    const std::string what = RepositoryOf(*named).what;
    return WithType(word, plan::FindWeightType(what).ok() ? what : kUsualType);
}

std::string WithType(const std::string& word, const std::string& type) {
    const size_t colon = word.rfind(':');
    std::string head = word;
    if (colon != word.npos && plan::FindWeightType(word.substr(colon + 1)).ok()) {
        head = word.substr(0, colon);
    } else if (const auto named = PlannedName(word); named && colon != word.npos) {
        head = named->name;  // "qwen3-8b" of "qwen3:8b"
    }
    return head + ":" + LowerCase(type);
}

std::string RunnableName(const std::string& word) {
    const auto named = PlannedName(word);
    if (!named || named->type.empty()) return word;
    const auto counted = plan::FindWeightType(named->type);
    return counted.ok() ? WithType(named->name, std::string(counted->type.name)) : word;
}

}  // namespace weft::cli
