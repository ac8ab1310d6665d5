#include "hub/short_names.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/nearest_word.h"
#include "base/text.h"
#include "hub/spec.h"

namespace weft::hub {
namespace {

constexpr size_t kMostNamed = 12;

// A file without access permission exists, too.
bool IsThere(const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    return std::filesystem::exists(status) || error == std::errc::permission_denied ||
           error == std::errc::too_many_symbolic_link_levels;
}

// "qwen2.5:7b" -> "2.5 7 ".
std::string NumbersOf(std::string_view text) {
    std::string numbers;
    bool inside = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto is_digit = [&](size_t at) {
            return at < text.size() && text[at] >= '0' && text[at] <= '9';
        };
        const bool belongs = is_digit(i) || (inside && text[i] == '.' && is_digit(i + 1));
        if (belongs) numbers += text[i];
        if (inside && !belongs) numbers += ' ';
        inside = belongs;
    }
    return numbers + (inside ? " " : "");
}

bool LooksLikePath(const std::string& word) {
    if (word.empty() || word[0] == '.' || word[0] == '/' || word[0] == '~') return true;
    return word.ends_with('/') || word.ends_with(".gguf") || word.ends_with(".safetensors") ||
           word.ends_with(".json");
}

}  // namespace

std::string ExpandShortName(const std::string& word) {
    const std::string lower = LowerCase(word);
    const auto found = std::ranges::find(ShortNames(), lower, &ShortName::name);
    return found == ShortNames().end() ? word : std::string(found->model);
}

std::string MeantBy(const std::string& word) {
    if (IsSpec(word) || IsThere(word)) return word;
    const std::string model = ExpandShortName(word);
    if (model != word) return model;
    const bool file_of_repository = word.find(':') != word.npos && !word.starts_with('.') &&
                                    !word.starts_with('/') && !word.starts_with('~');
    if (LooksLikePath(word) && !file_of_repository) return word;
    const auto spec = ParseSpec(word);
    return spec.ok() ? spec->Text() : word;
}

std::string ShortNameHint(const std::string& word) {
    std::vector<std::string> names;  // with the same numbers: other numbers mean another model
    std::string same_family;
    size_t count = 0;
    const std::string family = LowerCase(word) + ":";
    for (const ShortName& name : ShortNames()) {
        if (NumbersOf(name.name) == NumbersOf(word)) names.emplace_back(name.name);
        if (!name.name.starts_with(family) || ++count > kMostNamed) continue;
        same_family += same_family.empty() ? "" : ", ";
        same_family += name.name;
    }
    if (!same_family.empty()) return " Short names that begin with it: " + same_family + ".";
    return DidYouMean(word, names);
}

}  // namespace weft::hub
