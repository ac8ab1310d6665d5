#include "cli/models/model_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "cli/models/pull_model.h"
#include "cli/terminal/output.h"
#include "engine/drafts/drafting.h"
#include "hub/cache.h"
#include "hub/short_names.h"
#include "hub/spec.h"
#include "model_files/gguf_folder.h"
#include "plan/names.h"
#include "plan/shapes.h"

namespace weft::cli {
namespace {

constexpr const char* kUsualType = "Q4_K_M";

// Parses a bare name: neither a path nor a repository nor a file.
std::optional<plan::ShapeWord> PlannedName(const std::string& word) {
    std::error_code ignored;
    const bool other = word.empty() || word[0] == '.' || word[0] == '~' ||
                       word.find('/') != word.npos || word.starts_with("synthetic:") ||
                       word.ends_with(".gguf") || word.ends_with(".json") ||
                       word.ends_with(".safetensors");
    if (other || std::filesystem::exists(word, ignored)) return std::nullopt;
    return plan::FindShape(word);
}

// The repository of the short name with the same weights; an empty owner: none.
hub::RepoSpec RepositoryOf(const plan::ShapeWord& named) {
    for (const hub::ShortName& name : hub::ShortNames()) {
        const auto its = plan::FindShape(name.name);
        if (!its || its->model != named.model || its->variant != named.variant) continue;
        const auto spec = hub::ParseSpec(name.model);
        if (spec.ok()) return *spec;
    }
    return {};
}

// Whether the repository has GGUF files, judged by its name.
bool IsRepositoryOfGgufs(const std::string& word) {
    std::error_code ignored;
    return word.find('/') != word.npos && UpperCase(word).find("GGUF") != word.npos &&
           !std::filesystem::exists(word, ignored);
}

// The fault of the type in "qwen3-8b:q9_k", a known name; "" if the type is valid.
std::string FaultOfType(const std::string& word) {
    const size_t colon = word.rfind(':');
    if (colon == word.npos || !PlannedName(word.substr(0, colon))) return {};
    const auto type = plan::FindWeightType(word.substr(colon + 1));
    return type.ok() ? "" : fmt::format("'{}': {}", word, type.error().message);
}

// Whether a word may be a misspelled name rather than a path.
bool IsBareName(const std::string& word) {
    std::error_code ignored;
    return !word.empty() && std::isalpha(static_cast<unsigned char>(word[0])) != 0 &&
           word.find_first_of("/ ~") == word.npos && !word.starts_with("synthetic:") &&
           !word.ends_with(".gguf") && !word.ends_with(".json") &&
           !word.ends_with(".safetensors") && !std::filesystem::exists(word, ignored);
}

std::string NameHint(const std::string& word) {
    constexpr size_t kMost = 8;
    const std::string hint = hub::ShortNameHint(word);
    if (!hint.empty() || !IsBareName(word)) return hint;
    const std::vector<std::string> names = plan::NamesLike(word);
    if (names.size() > kMost) return {};
    return fmt::format(" Names with the same start: {}.", fmt::join(names, ", "));
}

}  // namespace

std::string SpecOfModel(const std::string& word) {
    const std::string meant = hub::MeantBy(word);
    if (hub::IsSpec(meant)) return meant;
    const auto named = PlannedName(word);
    if (!named) return {};
    hub::RepoSpec spec = RepositoryOf(*named);
    if (spec.owner.empty()) return {};
    if (named->type.empty()) return spec.Text();
    if (!plan::IsGgufType(named->type)) return {};
    spec.what = UpperCase(named->type);
    return spec.Text();
}

bool IsPlannedName(const std::string& word) {
    return PlannedName(word).has_value();
}

bool LooksLikeModel(const std::string& word) {
    std::error_code ignored;
    if (LowerCase(word).ends_with(".gguf") || word.starts_with("synthetic:")) return true;
    if (!std::filesystem::exists(word, ignored)) {
        return !SpecOfModel(word).empty() || IsPlannedName(word);
    }
    return model_files::IsGgufFolder(word) ||
           std::filesystem::exists(word + "/config.json", ignored);
}

bool IsNotRun(const std::string& word) {
    const auto named = PlannedName(word);
    return named && !named->runs;
}

Result<std::string> NeedSpec(const std::string& word) {
    std::string spec = SpecOfModel(word);
    if (!spec.empty()) return spec;
    if (IsNotRun(word)) {
        return MakeError(ErrorCode::kNotFound,
                         "'{}': Weft does not run this model yet ('weft models' lists the "
                         "architectures that run)",
                         word);
    }
    if (const auto named = PlannedName(word)) {
        const hub::RepoSpec its = RepositoryOf(*named);
        if (!its.owner.empty()) {
            return MakeError(ErrorCode::kNotFound,
                             "'{}': no files of {} have the type {}. Use '{}', or a repository "
                             "with that type, as OWNER/NAME",
                             word, its.Repo(), named->type, WithType(named->name, kUsualType));
        }
        const std::string other =
            named->variant.empty() ? "" : fmt::format(" (as '{}')", named->variant);
        return MakeError(ErrorCode::kNotFound,
                         "'{}': 'weft plan' knows the shape of this model, but Weft knows no "
                         "repository with its weights{}. Name one as OWNER/NAME[:TYPE], or use a "
                         "file",
                         word, other);
    }
    if (const std::string fault = FaultOfType(word); !fault.empty()) {
        return MakeError(ErrorCode::kNotFound, "{}", fault);
    }
    return MakeError(ErrorCode::kUsage,
                     "'{}' is neither a file or folder here nor a model of the Hub; expected "
                     "[hf:]OWNER/NAME[:TYPE], a short name, or a name that 'weft plan' takes.{}",
                     word, NameHint(word));
}

Status FindModel(std::string& model, bool pull) {
    const auto meant = NeedSpec(model);
    if (!meant.ok()) {
        const bool is_name = meant.error().code == ErrorCode::kNotFound;
        if (pull || is_name) return meant.error();
        if (IsBareName(model)) return Error{ErrorCode::kNotFound, meant.error().message};
        return {};  // opened as a path
    }
    WEFT_ASSIGN(const hub::RepoSpec spec, hub::ParseSpec(*meant));
    if (spec.is_dataset) return {};  // opening it reports the error
    WEFT_ASSIGN(hub::Config config, hub::ConfigFromEnvironment());
    const auto cached = hub::FindCached(config, spec);
    if (!cached.ok() && !pull) {
        // For words of the Hub, opening the model reports the error.
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

Status FindData(const std::vector<std::string>& words, const std::string& model, bool& pull) {
    if (!pull || std::ranges::none_of(words, hub::IsDataSpec)) return {};
    pull = !SpecOfModel(model).empty();
    for (const std::string& word : words) {
        if (!hub::IsDataSpec(word)) continue;
        WEFT_ASSIGN(const hub::RepoSpec spec, hub::ParseSpec(word));
        WEFT_ASSIGN(hub::Config config, hub::ConfigFromEnvironment());
        if (hub::FindCachedData(config, spec).ok()) continue;
        config.stop = CatchInterrupts();
        WEFT_ASSIGN([[maybe_unused]] const hub::Pulled pulled, PullShown(config, spec));
    }
    return {};
}

Status FindDraft(std::string& model, bool pull) {
    if (model.empty() || model == engine::DraftOptions::kDraftHead) return {};
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
        head = named->name;  // "qwen3-8b" for "qwen3:8b"
    }
    return head + ":" + LowerCase(type);
}

std::string RunnableName(const std::string& word) {
    const auto named = PlannedName(word);
    if (!named || named->type.empty() || !named->variant.empty()) return word;
    const auto counted = plan::FindWeightType(named->type);
    if (!counted.ok()) return word;
    // Four-bit types without a GGUF form count as MXFP4; files of this model have the usual type.
    const std::string type(counted->type.name);
    const bool other = type == "MXFP4" && !plan::IsGgufType(named->type);
    return WithType(named->name, other ? kUsualType : type);
}

}  // namespace weft::cli
