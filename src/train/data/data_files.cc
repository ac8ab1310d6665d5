#include "train/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "train/data/unpack.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTakenSuffixes[] = {".json", ".jsonl", ".ndjson",
                                               ".csv",  ".tsv",   ".txt"};
constexpr std::string_view kRefusedSuffixes[] = {".parquet", ".arrow"};
constexpr std::string_view kDescriptions[] = {"dataset_info.json", "dataset_infos.json",
                                              "dataset_dict.json", "state.json"};
constexpr const char* kTakenNames = ".json, .jsonl, .ndjson, .csv, .tsv or .txt (also .gz)";

bool HasSuffix(std::string_view name, const auto& suffixes) {
    return std::ranges::any_of(suffixes,
                               [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Whether a file of a folder is used.
Result<bool> IsTaken(const fs::path& path) {
    const std::string name = path.filename();
    if (HasSuffix(name, kRefusedSuffixes)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: Parquet and Arrow files are not read. Convert it to JSON lines "
                         "(pandas: read_parquet(...).to_json(..., orient='records', lines=True))",
                         path.string());
    }
    return HasSuffix(WithoutCompression(name), kTakenSuffixes) &&
           std::ranges::find(kDescriptions, name) == std::end(kDescriptions);
}

Result<std::vector<std::string>> FilesOf(const std::string& folder) {
    std::vector<std::string> found;
    std::error_code error;
    fs::recursive_directory_iterator at(folder, error), end;
    for (; !error && at != end; at.increment(error)) {
        const bool hidden = at->path().filename().string().starts_with('.');
        if (hidden && at->is_directory(error)) at.disable_recursion_pending();
        if (hidden || !at->is_regular_file(error)) continue;
        WEFT_ASSIGN(const bool taken, IsTaken(at->path()));
        if (taken) found.push_back(at->path());
        if (found.size() > kMostDataFiles) break;  // the caller rejects so many
    }
    if (error) return MakeError(ErrorCode::kIo, "{}: {}", folder, error.message());
    if (found.empty()) {
        return MakeError(ErrorCode::kNotFound, "{}: no file in this folder ends in {}", folder,
                         kTakenNames);
    }
    std::ranges::sort(found);
    return found;
}

}  // namespace

Result<std::vector<std::string>> DataFiles(const std::vector<std::string>& paths) {
    std::vector<std::string> all;
    for (const std::string& path : paths) {
        std::error_code error;
        if (fs::is_directory(path, error)) {
            WEFT_ASSIGN(const std::vector<std::string> files, FilesOf(path));
            all.insert(all.end(), files.begin(), files.end());
        } else {
            all.push_back(path);  // opening it reports the error
        }
    }
    if (all.size() <= kMostDataFiles) return all;
    return MakeError(ErrorCode::kUnsupported,
                     "--data names {} files or more; at most {} are read. "
                     "Join them (cat)",
                     all.size(), kMostDataFiles);
}

}  // namespace weft::train
