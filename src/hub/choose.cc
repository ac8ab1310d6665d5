#include "hub/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/text.h"

namespace weft::hub {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostShown = 40;

// The parts of one GGUF file: "x-00001-of-00003.gguf" and the others, or a single file.
struct Group {
    std::vector<RepoFile> parts;  // in order
    size_t expected = 1;
    uint64_t bytes = 0;
};

std::string_view BaseName(std::string_view path) {
    return path.substr(path.rfind('/') == path.npos ? 0 : path.rfind('/') + 1);
}

bool IsGguf(std::string_view path) {
    return LowerCase(path).ends_with(".gguf");
}

// Image projectors and importance matrices are not models.
bool IsModelGguf(std::string_view path) {
    const std::string name = LowerCase(BaseName(path));
    return IsGguf(path) && name.find("mmproj") == name.npos && !name.starts_with("imatrix");
}

bool IsDigits(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// For "x-00002-of-00003.gguf": "x" and 3; for other paths: the path and 1.
std::pair<std::string, size_t> SplitName(const std::string& path) {
    constexpr size_t kTail = 20;  // -00002-of-00003.gguf
    if (path.size() <= kTail) return {path, 1};
    const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
    const bool split = tail[0] == '-' && IsDigits(tail.substr(1, 5)) &&
                       tail.substr(6, 4) == "-of-" && IsDigits(tail.substr(10, 5));
    if (!split) return {path, 1};
    const size_t count = std::stoul(std::string(tail.substr(10, 5)));
    return {path.substr(0, path.size() - kTail) + "*" + std::string(tail.substr(6)), count};
}

std::map<std::string, Group> GgufGroups(const std::vector<RepoFile>& files) {
    std::map<std::string, Group> groups;
    for (const RepoFile& file : files) {
        if (!IsModelGguf(file.path)) continue;
        const auto [key, count] = SplitName(file.path);
        Group& group = groups[key];
        group.parts.push_back(file);
        group.expected = count;
        group.bytes += file.bytes;
    }
    for (auto& [key, group] : groups) {
        std::ranges::sort(group.parts, {}, &RepoFile::path);
    }
    return groups;
}

// The available GGUF files, one per line.
std::string Shelf(const std::map<std::string, Group>& groups) {
    std::string text;
    size_t shown = 0;
    for (const auto& [key, group] : groups) {
        if (++shown > kMostShown) {
            text += fmt::format("\n  ... and {} more", groups.size() - kMostShown);
            break;
        }
        text += fmt::format("\n  {:>10}  {}{}", BytesText(group.bytes),
                            Shown(group.parts.front().path, 160),
                            group.parts.size() > 1 ? fmt::format(" ({} parts)", group.parts.size())
                                                   : std::string());
    }
    return text;
}

Result<Choice> FromGroup(const Group& group, const RepoSpec& spec) {
    if (group.parts.size() != group.expected) {
        return MakeError(ErrorCode::kNotFound, "{}: {} has {} of its {} parts", spec.Text(),
                         Shown(group.parts.front().path), group.parts.size(), group.expected);
    }
    return Choice{group.parts, group.parts.front().path, ""};
}

Result<Choice> ByTag(const std::map<std::string, Group>& groups, const RepoSpec& spec) {
    std::map<std::string, Group> matching;
    for (const auto& [key, group] : groups) {
        if (HasTag(group.parts.front().path, spec.what)) matching.insert({key, group});
    }
    if (matching.size() == 1) return FromGroup(matching.begin()->second, spec);
    if (matching.size() > 1) {
        return MakeError(ErrorCode::kUsage,
                         "hf:{}: '{}' matches several files; give the path of one of them:{}",
                         spec.Repo(), spec.what, Shelf(matching));
    }
    if (groups.empty()) {
        return MakeError(ErrorCode::kNotFound, "hf:{}: no file '{}', and no GGUF file", spec.Repo(),
                         spec.what);
    }
    return MakeError(ErrorCode::kNotFound,
                     "hf:{}: no file '{}', and no GGUF file of that type; available:{}",
                     spec.Repo(), spec.what, Shelf(groups));
}

bool IsSetting(const std::string& path) {
    constexpr std::string_view kTemplates = "additional_chat_templates/";
    const std::string name = LowerCase(path);
    if (path.starts_with(kTemplates) && path.find('/', kTemplates.size()) == path.npos) {
        return name.ends_with(".jinja");
    }
    if (path.find('/') != path.npos) return false;
    if (name.ends_with(".index.json")) return false;
    return name.ends_with(".json") || name.ends_with(".model") || name.ends_with(".tiktoken") ||
           name.ends_with(".jinja") || name == "merges.txt" || name == "vocab.txt";
}

// A file of a module of sentence-transformers: "1_Pooling/config.json".
bool IsOfModule(const std::string& path) {
    const size_t slash = path.find('/'), line = path.find('_');
    if (slash == path.npos || line == 0 || line >= slash || !IsDigits(path.substr(0, line))) {
        return false;
    }
    const std::string name = path.substr(slash + 1);
    return name == "config.json" || name == "model.safetensors";
}

bool IsShard(const std::string& path) {
    return path.find('/') == path.npos && LowerCase(path).ends_with(".safetensors");
}

bool IsTorchShard(const std::string& path) {
    return path.find('/') == path.npos && path.starts_with("pytorch_model") &&
           path.ends_with(".bin");
}

// The files of a folder with safetensors, else with pytorch_model.bin or its shards.
Choice Folder(const std::vector<RepoFile>& files) {
    Choice choice;
    const bool torch = std::ranges::none_of(files, IsShard, &RepoFile::path);
    const char* const single = torch ? "pytorch_model.bin" : "model.safetensors";
    const char* const index = torch ? "pytorch_model.bin.index.json" : kIndex;
    const auto whole = std::ranges::find(files, single, &RepoFile::path);
    const RepoFile* alone = whole == files.end() ? nullptr : &*whole;
    for (const RepoFile& file : files) {
        const bool lists =
            file.path == index && alone == nullptr;  // (safetensors.h: else not read)
        if (lists) choice.index = index;
        if (lists || IsSetting(file.path) || IsOfModule(file.path)) choice.files.push_back(file);
    }
    if (!choice.index.empty()) return choice;
    for (const RepoFile& file : files) {
        const bool shard = torch ? IsTorchShard(file.path) : IsShard(file.path);
        if (alone != nullptr ? &file == alone : shard) choice.files.push_back(file);
    }
    return choice;
}

// "Q4_K_M", "iq2_xs", "mxfp4", "BF16".
bool IsType(std::string_view word) {
    const std::string lower = LowerCase(word);
    if (lower == "f16" || lower == "f32" || lower == "bf16" || lower.starts_with("mxfp"))
        return true;
    const size_t letters = lower.starts_with("iq") || lower.starts_with("tq") ? 2
                           : lower.starts_with("q")                           ? 1
                                                                              : 0;
    return letters > 0 && lower.size() > letters + 1 && IsDigits(lower.substr(letters, 1)) &&
           lower[letters + 1] == '_';
}

}  // namespace

// (Words are separated by '-', '.', '/' and the ends of the path.)
bool HasTag(std::string_view path, std::string_view tag) {
    const std::string lower = LowerCase(path), wanted = LowerCase(tag);
    const auto is_border = [](char c) { return c == '-' || c == '.' || c == '/'; };
    for (size_t at = 0; (at = lower.find(wanted, at)) != lower.npos; ++at) {
        const size_t end = at + wanted.size();
        if ((at == 0 || is_border(lower[at - 1])) && (end == lower.size() || is_border(lower[end])))
            return true;
    }
    return false;
}

std::string TypeInName(std::string_view path) {
    std::string_view name = BaseName(path);
    for (size_t end = name.size(); end != name.npos && !name.empty(); name = name.substr(0, end)) {
        end = name.find_last_of("-.");
        const std::string_view word = end == name.npos ? name : name.substr(end + 1);
        if (IsType(word)) return std::string(word);
        if (end == name.npos) break;
    }
    return {};
}

std::vector<Offer> OffersAmong(const std::vector<RepoFile>& files) {
    std::vector<Offer> offers;
    const auto has = [&](const auto& is) {
        return std::ranges::any_of(files, [&](const RepoFile& file) { return is(file.path); });
    };
    const auto groups = GgufGroups(files);
    const bool weights = has(IsShard) || (groups.empty() && has(IsTorchShard));
    if (weights && has([](const std::string& path) { return path == "config.json"; })) {
        offers.push_back({Folder(files), "", true});
    }
    for (const auto& [key, group] : groups) {
        const std::string& path = group.parts.front().path;
        const std::string type = TypeInName(path);
        const auto same = std::ranges::count_if(groups, [&](const auto& other) {
            return HasTag(other.second.parts.front().path, type);
        });
        offers.push_back({Choice{group.parts, path, ""}, !type.empty() && same == 1 ? type : path,
                          group.parts.size() == group.expected});
    }
    return offers;
}

Result<Choice> Choose(const std::vector<RepoFile>& files, const RepoSpec& spec) {
    const auto groups = GgufGroups(files);
    const auto has = [&](const auto& is) {
        return std::ranges::any_of(files, [&](const RepoFile& file) { return is(file.path); });
    };
    if (!spec.what.empty()) {
        for (const RepoFile& file : files) {
            if (file.path != spec.what) continue;
            const auto group = groups.find(SplitName(file.path).first);
            if (group != groups.end()) return FromGroup(group->second, spec);
            return Choice{{file}, file.path, ""};
        }
        return ByTag(groups, spec);
    }
    const bool config = has([](const std::string& path) { return path == "config.json"; });
    if (config && (has(IsShard) || (groups.empty() && has(IsTorchShard)))) return Folder(files);
    if (groups.size() == 1) return FromGroup(groups.begin()->second, spec);
    if (groups.empty()) {
        return MakeError(ErrorCode::kNotFound,
                         "{}: no GGUF file, and no safetensors or pytorch_model.bin with a "
                         "config.json, among its {} "
                         "files. To get one file, use hf:{}:FILE",
                         spec.Text(), files.size(), spec.Repo());
    }
    return MakeError(ErrorCode::kUsage,
                     "{}: the repository has {} models; give the type of one, such as "
                     "hf:{}:Q4_K_M, or its path:{}",
                     spec.Text(), groups.size(), spec.Repo(), Shelf(groups));
}

Status AddShards(Choice& choice, const std::vector<RepoFile>& files, std::string_view index,
                 const RepoSpec& spec) {
    WEFT_ASSIGN(const auto names, ParseShardIndex(index, spec.Text() + ": " + choice.index));
    for (const std::string& name : names) {
        const auto found = std::ranges::find(files, name, &RepoFile::path);
        if (found == files.end()) {
            return MakeError(ErrorCode::kNotFound, "{}: {} lists {}, which is missing", spec.Text(),
                             choice.index, Shown(name));
        }
        choice.files.push_back(*found);
    }
    choice.index.clear();
    return {};
}

}  // namespace weft::hub
