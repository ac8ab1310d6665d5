#include "model_files/gguf_folder.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <vector>

#include <fmt/ranges.h>

#include "base/text.h"

namespace weft::model_files {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 10'000, kMostShown = 12;

std::vector<std::string> GgufNames(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    fs::directory_iterator files(folder, ignored);
    for (size_t seen = 0; !ignored && files != fs::directory_iterator() && seen < kMostFiles;
         ++seen, files.increment(ignored)) {
        if (LowerCase(files->path().extension().string()) == ".gguf") {
            names.push_back(files->path().filename());
        }
    }
    std::ranges::sort(names);
    return names;
}

bool IsCompanion(const std::string& file) {
    const std::string name = LowerCase(file);
    return name.find("mmproj") != name.npos || name.find("imatrix") != name.npos;
}

// "name-00002-of-00005.gguf" without the part number; other names are unchanged.
std::string WithoutPart(const std::string& name) {
    constexpr size_t kTail = std::char_traits<char>::length("-00001-of-00003.gguf");
    const size_t at = name.size() < kTail ? name.npos : name.size() - kTail;
    if (at == name.npos || name[at] != '-' || name.compare(at + 6, 4, "-of-") != 0) return name;
    return name.substr(0, at) + name.substr(at + 6);
}

}  // namespace

bool IsGgufFolder(const std::string& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return false;
    for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
        if (fs::exists(fs::path(path) / name, ignored)) return false;
    }
    return !GgufNames(path).empty();
}

Result<std::string> FindGguf(const std::string& folder) {
    std::map<std::string, std::string> models;  // name without the part number -> first part
    for (const bool companions : {false, true}) {
        for (const std::string& name : GgufNames(folder)) {
            if (IsCompanion(name) == companions) models.emplace(WithoutPart(name), name);
        }
        if (!models.empty()) break;  // opening a companion alone gives a clear error
    }
    if (models.empty()) return MakeError(ErrorCode::kNotFound, "{}: no GGUF file", folder);
    if (models.size() == 1) return (fs::path(folder) / models.begin()->second).string();
    std::vector<std::string> shown;
    for (const auto& [stem, name] : models) {
        if (shown.size() < kMostShown) shown.push_back(name);
    }
    const size_t more = models.size() - shown.size();
    return MakeError(ErrorCode::kUsage, "{}: the folder has {} GGUF models; give one of them: {}{}",
                     folder, models.size(), fmt::join(shown, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace weft::model_files
