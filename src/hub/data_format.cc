#include "hub/data_format.h"

#include <algorithm>

#include "base/text.h"

namespace weft::hub {
namespace {

constexpr std::string_view kFormats[] = {".parquet", ".jsonl", ".ndjson", ".json",
                                         ".arrow",   ".csv",   ".tsv",    ".txt"};
constexpr std::string_view kCompressions[] = {".gz", ".zst", ".xz", ".bz2"};
constexpr std::string_view kDescriptions[] = {"dataset_info.json", "dataset_infos.json",
                                              "dataset_dict.json", "state.json"};
// Text files about a data set.
constexpr std::string_view kAbout[] = {"license", "licence",      "copying",
                                       "readme",  "requirements", "changelog"};

bool IsLetter(char c) {
    return c >= 'a' && c <= 'z';
}

}  // namespace

std::string_view WithoutCompression(std::string_view path) {
    for (const std::string_view suffix : kCompressions) {
        if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
    }
    return path;
}

std::string DataFormatOf(std::string_view path) {
    const std::string whole = LowerCase(std::string(path.substr(path.rfind('/') + 1)));
    const std::string_view name = WithoutCompression(whole);
    const bool about = std::ranges::any_of(kAbout, [&](std::string_view word) {
        return name.ends_with(".txt") && name.starts_with(word) && !IsLetter(name[word.size()]);
    });
    if (about || name.starts_with('.') || std::ranges::count(kDescriptions, name) > 0) return {};
    const auto* format = std::ranges::find_if(
        kFormats, [&](std::string_view suffix) { return name.ends_with(suffix); });
    return format == std::end(kFormats) ? std::string() : std::string(*format);
}

}  // namespace weft::hub
