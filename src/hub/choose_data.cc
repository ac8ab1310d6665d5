#include "hub/choose_data.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "hub/data_format.h"

namespace weft::hub {
namespace {

using nlohmann::json;

constexpr size_t kMostStars = 6, kMostPatterns = 1024;
constexpr size_t kMostShown = 32;
constexpr std::string_view kArrow = ".arrow";

// Words of the usual splits, as in the package datasets (data_files.py, SPLIT_KEYWORDS).
const std::map<std::string, std::vector<std::string>> kSplitWords = {
    {"train", {"train", "training"}},
    {"validation", {"validation", "valid", "dev", "val"}},
    {"test", {"test", "testing", "eval", "evaluation"}}};

using Files = std::vector<RepoFile>;

Files Filtered(const Files& files, const auto& is) {
    Files kept;
    std::ranges::copy_if(files, std::back_inserter(kept),
                         [&](const RepoFile& file) { return is(file.path); });
    return kept;
}

using Parts = std::span<const std::string_view>;

// (Only the last `**` tries another folder when a name does not match.)
bool MatchParts(Parts path, Parts pattern) {
    size_t at = 0, next = 0, taken = 0, behind_stars = std::string::npos;
    while (at < path.size()) {
        if (next < pattern.size() && pattern[next] == "**") {
            behind_stars = ++next;
            taken = at;
        } else if (next < pattern.size() && ::fnmatch(std::string(pattern[next]).c_str(),
                                                      std::string(path[at]).c_str(), 0) == 0) {
            ++at, ++next;
        } else if (behind_stars != std::string::npos) {
            at = ++taken;
            next = behind_stars;
        } else {
            return false;
        }
    }
    while (next < pattern.size() && pattern[next] == "**") ++next;
    return next == pattern.size();
}

// Whether the path matches a pattern: `*` within a folder, `**` for any number of folders; a folder
// means all files in it.
bool Matches(const std::string& path, const std::string& pattern) {
    if (path == pattern || path.starts_with(pattern + "/")) return true;
    if (std::ranges::count(pattern, '*') > static_cast<std::ptrdiff_t>(2 * kMostStars))
        return false;
    return MatchParts(Split(path, '/'), Split(pattern, '/'));
}

// "train" of "data/train-00000-of-00003.parquet"; "": another form.
std::string ShardSplit(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    const size_t of = name.find("-of-");
    if (of == name.npos || of < 7 || name[of - 6] != '-') return "";
    const auto digits = name.substr(of - 5, 5);
    const bool numbered = std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    return numbered ? std::string(name.substr(0, of - 6)) : "";
}

bool HasWord(const std::string& path, const std::string& word) {
    const std::string text = LowerCase(path), wanted = LowerCase(word);
    const auto border = [](char c) { return c < 'a' || c > 'z'; };
    for (size_t at = 0; (at = text.find(wanted, at)) != text.npos; ++at) {
        const size_t end = at + wanted.size();
        if ((at == 0 || border(text[at - 1])) && (end == text.size() || border(text[end]))) {
            return true;
        }
    }
    return false;
}

bool IsOfSplit(const std::string& path, const std::string& split) {
    if (const std::string shard = ShardSplit(path); !shard.empty()) return shard == split;
    const auto words = kSplitWords.find(split);
    if (words == kSplitWords.end()) return HasWord(path, split);
    return std::ranges::any_of(words->second,
                               [&](const std::string& word) { return HasWord(path, word); });
}

std::string ListOf(const std::set<std::string>& names) {
    std::vector<std::string> shown;
    for (const std::string& name : names) {
        if (shown.size() < kMostShown) shown.push_back(Shown(name));
    }
    return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kMostShown ? ", ..." : "");
}

Error NoSplit(const RepoSpec& spec, const std::set<std::string>& splits) {
    RepoSpec other = spec;
    other.split = splits.empty() ? "" : Shown(*splits.begin());
    if (splits.empty()) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: no file of its split '{}' ends in .parquet, .jsonl, .json, "
                         ".csv, .tsv or .txt",
                         spec.Text(), spec.split);
    }
    return MakeError(ErrorCode::kNotFound, "{}: no split '{}'; its splits: {}. Name one, as {}",
                     spec.Text(), spec.split, ListOf(splits), other.Text());
}

Result<Files> BySplit(const Files& files, const RepoSpec& spec) {
    std::set<std::string> splits;
    for (const RepoFile& file : files) {
        if (const std::string shard = ShardSplit(file.path); !shard.empty()) splits.insert(shard);
    }
    for (const auto& [split, words] : kSplitWords) {
        const auto is = [name = split](const RepoFile& file) { return IsOfSplit(file.path, name); };
        if (std::ranges::any_of(files, is)) splits.insert(split);
    }
    Files chosen =
        Filtered(files, [&](const std::string& path) { return IsOfSplit(path, spec.split); });
    if (chosen.empty() && splits.empty() && spec.split == "train") chosen = files;
    if (chosen.empty()) return NoSplit(spec, splits);
    return chosen;
}

// A configuration in the README.
struct DataConfig {
    std::string name = "default", folder;
    bool is_default = false;
    std::map<std::string, std::vector<std::string>> patterns;  // by split
};

void AddPatterns(const json& value, std::vector<std::string>& patterns) {
    if (value.is_string() && patterns.size() < kMostPatterns) {
        patterns.push_back(value.get<std::string>());
    }
    if (!value.is_array()) return;
    for (const json& one : value) AddPatterns(one.is_string() ? one : json(), patterns);
}

std::string TextOf(const json& object, const char* key, const std::string& fallback) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : fallback;
}

DataConfig ConfigOf(const json& entry) {
    DataConfig config;
    config.name = TextOf(entry, "config_name", config.name);
    config.folder = TextOf(entry, "data_dir", "");
    const auto chosen = entry.find("default");
    config.is_default = chosen != entry.end() && *chosen == true;
    const auto files = entry.find("data_files");
    if (files == entry.end()) return config;
    if (files->is_object()) {
        for (const auto& [split, path] : files->items()) AddPatterns(path, config.patterns[split]);
        return config;
    }
    for (const json& one : files->is_array() ? *files : json::array({*files})) {
        const bool named = one.is_object() && one.contains("path");
        AddPatterns(named ? one.at("path") : one,
                    config.patterns[named ? TextOf(one, "split", "train") : "train"]);
    }
    return config;
}

std::vector<DataConfig> ConfigsOf(std::string_view info) {
    const json parsed = JsonOrDiscarded(info, {.depth = 32});
    std::vector<DataConfig> configs;
    if (!parsed.is_object() || !parsed.contains("cardData")) return configs;
    const json& card = parsed.at("cardData");
    if (!card.is_object() || !card.contains("configs")) return configs;
    for (const json& entry : card.at("configs")) {
        if (entry.is_object()) configs.push_back(ConfigOf(entry));
    }
    return configs;
}

// The name of the configuration to use.
Result<std::string> ConfigName(const std::set<std::string>& names, const RepoSpec& spec) {
    if (!spec.what.empty() && names.contains(spec.what)) return spec.what;
    if (spec.what.empty() && names.contains("default")) return std::string("default");
    if (spec.what.empty() && names.size() == 1) return *names.begin();
    RepoSpec other = spec;
    other.what = names.empty() ? "" : Shown(*names.begin());
    const bool lacks = !spec.what.empty();
    return MakeError(
        lacks ? ErrorCode::kNotFound : ErrorCode::kUsage,
        "{}: {}; its configurations: {}. Name one, as {}", spec.Text(),
        lacks ? fmt::format("no configuration '{}'", spec.what) : "it has several configurations",
        names.empty() ? "none" : ListOf(names), other.Text());
}

Result<Files> ByConfigs(const Files& files, const std::vector<DataConfig>& configs,
                        const RepoSpec& spec) {
    std::set<std::string> names;
    std::string name;
    for (const DataConfig& config : configs) {
        names.insert(config.name);
        if (config.is_default && spec.what.empty()) name = config.name;
    }
    if (name.empty()) {
        WEFT_ASSIGN(name, ConfigName(names, spec));
    }
    const DataConfig& config = *std::ranges::find(configs, name, &DataConfig::name);
    const std::string folder = config.folder.empty() ? "" : config.folder + "/";
    if (config.patterns.empty()) {
        const auto below = [&](const std::string& path) { return path.starts_with(folder); };
        return BySplit(Filtered(files, below), spec);
    }
    const auto patterns = config.patterns.find(spec.split);
    if (patterns == config.patterns.end()) {
        std::set<std::string> splits;
        for (const auto& [split, paths] : config.patterns) splits.insert(split);
        return NoSplit(spec, splits);
    }
    Files chosen = Filtered(files, [&](const std::string& path) {
        return std::ranges::any_of(patterns->second, [&](const std::string& pattern) {
            return Matches(path, folder + pattern);
        });
    });
    if (chosen.empty()) return NoSplit(spec, {});
    return chosen;
}

// Configurations are folders.
Result<Files> ByFolders(const Files& files, const RepoSpec& spec) {
    const bool converted = spec.revision == kConvertedRevision;
    if (spec.what.empty() && !converted) return BySplit(files, spec);
    std::set<std::string> folders;
    for (const RepoFile& file : files) {
        const size_t slash = file.path.find('/');
        if (slash != file.path.npos) folders.insert(file.path.substr(0, slash));
    }
    WEFT_ASSIGN(const std::string name, ConfigName(folders, spec));
    Files below = Filtered(files, [&](const std::string& p) { return p.starts_with(name + "/"); });
    // (A configuration's name may have the word of a split.)
    for (RepoFile& file : below) file.path.erase(0, name.size() + 1);
    WEFT_ASSIGN(Files chosen, BySplit(below, spec));
    for (RepoFile& file : chosen) file.path.insert(0, name + "/");
    return chosen;
}

}  // namespace

Result<Files> ChooseData(const Files& files, const RepoSpec& spec, std::string_view info) {
    const auto data = Filtered(files, [](const std::string& p) {
        const std::string format = DataFormatOf(p);
        return !format.empty() && format != kArrow;
    });
    const auto refused = [&](const std::string& why) {
        RepoSpec converted = spec;
        converted.revision = kConvertedRevision;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}. The Hub converts most data sets to Parquet files: use {}",
                         spec.Text(), why, converted.Text());
    };
    const std::vector<DataConfig> configs = ConfigsOf(info);
    const std::string program = spec.name + ".py";
    if (configs.empty() && std::ranges::find(files, program, &RepoFile::path) != files.end()) {
        return refused(fmt::format(
            "its program {} makes the data; Weft runs no programs of data sets", program));
    }
    std::map<std::string, size_t> all;
    for (const RepoFile& file : files) ++all[DataFormatOf(file.path)];
    all.erase("");
    const size_t arrows = std::exchange(all[std::string(kArrow)], 0);
    if (arrows > 0 && std::ranges::all_of(all, [&](const auto& c) { return c.second < arrows; })) {
        return refused("its files are Arrow files, which Weft does not read");
    }
    WEFT_ASSIGN(Files chosen,
                configs.empty() ? ByFolders(data, spec) : ByConfigs(data, configs, spec));
    std::map<std::string, size_t> counts;
    for (const RepoFile& file : chosen) ++counts[DataFormatOf(file.path)];
    const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    const std::string& format = most->first;
    chosen = Filtered(chosen, [&](const std::string& p) { return DataFormatOf(p) == format; });
    std::ranges::sort(chosen, {}, &RepoFile::path);
    if (chosen.size() <= kMostDataFiles) return chosen;
    return MakeError(ErrorCode::kUnsupported,
                     "{}: the split has {} files; 'weft train' reads at most {}. Name a "
                     "configuration with fewer files, or download the files that you need and give "
                     "their folder to --data",
                     spec.Text(), chosen.size(), kMostDataFiles);
}

}  // namespace weft::hub
