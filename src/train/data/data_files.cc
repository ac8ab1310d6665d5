#include "train/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "hub/cache.h"
#include "hub/data_format.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

// Names of splits, as in the package datasets (data_files.py, SPLIT_KEYWORDS).
constexpr std::string_view kTrainWords[] = {"train", "training"};
constexpr std::string_view kTestWords[] = {
    "validation", "valid",   "dev",     "val",     "test",   "eval",  "testing",
    "evaluation", "testset", "holdout", "heldout", "valset", "devset"};
constexpr const char* kTakenNames =
    ".json, .jsonl, .ndjson, .csv, .tsv, .parquet or .txt (also .gz)";
constexpr size_t kMostFolders = 65536, kMostFound = 1 << 20;

bool IsLetter(char c) {
    return c >= 'a' && c <= 'z';
}

bool IsUpper(char c) {
    return c >= 'A' && c <= 'Z';
}

// The words of a name: runs of letters, each also divided where its case changes ("chatTest",
// "QATest").
std::vector<std::string> WordsOf(std::string_view name) {
    std::vector<std::string> words, parts;
    const auto letter = [](char c) { return IsLetter(c) || IsUpper(c); };
    for (size_t at = 0; at < name.size();) {
        size_t end = at;
        while (end < name.size() && letter(name[end])) ++end;
        const std::string_view run = name.substr(at, end - at);
        for (size_t from = 0, i = 1; i <= run.size(); ++i) {
            const bool up = i < run.size() && IsUpper(run[i]);
            const bool next = i + 1 < run.size() && IsLetter(run[i + 1]);
            const bool cut = i == run.size() || (up && (IsLetter(run[i - 1]) || next));
            if (!cut) continue;
            parts.push_back(LowerCase(std::string(run.substr(from, i - from))));
            from = i;
        }
        if (!run.empty()) words.push_back(LowerCase(std::string(run)));
        at = end + 1;
    }
    // "held-out"
    for (size_t i = 0; i + 1 < parts.size(); ++i) words.push_back(parts[i] + parts[i + 1]);
    words.insert(words.end(), parts.begin(), parts.end());
    return words;
}

// Whether one of the words of a name, or its singular, is in `words`.
bool HasWord(std::string_view name, const auto& words) {
    return std::ranges::any_of(WordsOf(name), [&](std::string_view word) {
        const auto known = [&](std::string_view one) {
            return std::ranges::find(words, one) != std::end(words);
        };
        return known(word) || (word.ends_with('s') && known(word.substr(0, word.size() - 1)));
    });
}

// Collects the data files below a folder.
class FolderWalk {
  public:
    Status Run(const fs::path& folder) {
        std::vector<fs::path> links{folder};
        // (Folders before links to them, so that a file below both keeps its own path.)
        for (size_t i = 0; i < links.size() && Reads(); ++i) {
            std::vector<fs::path> folders{links[i]};
            while (!folders.empty() && Reads()) {
                const fs::path next = std::move(folders.back());
                folders.pop_back();
                WEFT_TRY(ReadFolder(next, folders, links));
            }
        }
        if (Reads()) return {};
        const bool folders = seen_.size() > kMostFolders;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: more than {} {} are in it; at most these are read. Name the files "
                         "instead",
                         folder.string(), folders ? kMostFolders : kMostFound,
                         folders ? "folders" : "data files");
    }
    std::vector<std::string> found;

  private:
    // (The files of other splits count, too: the caller leaves them out, and rejects too many.)
    bool Reads() const { return found.size() <= kMostFound && seen_.size() <= kMostFolders; }

    Status ReadFolder(const fs::path& folder, std::vector<fs::path>& folders,
                      std::vector<fs::path>& links) {
        const auto failed = [](const fs::path& path, const std::error_code& error) {
            return MakeError(ErrorCode::kIo, "{}: {}", path.string(), error.message());
        };
        std::error_code error;
        const fs::path own = fs::canonical(folder, error);
        if (error) return failed(folder, error);
        if (!seen_.insert(own).second) return {};
        std::vector<fs::path> entries;
        for (fs::directory_iterator at(folder, error), end; !error && at != end;
             at.increment(error)) {
            if (!at->path().filename().string().starts_with('.')) entries.push_back(at->path());
        }
        if (error) return failed(folder, error);
        std::ranges::sort(entries);
        for (const fs::path& entry : entries) {
            const fs::file_status status = fs::status(entry, error);
            if (fs::is_directory(status)) {
                (fs::is_symlink(entry, error) ? links : folders).push_back(entry);
                continue;
            }
            if (status.type() == fs::file_type::none) return failed(entry, error);
            const bool missing = status.type() == fs::file_type::not_found;
            if (!missing && !fs::is_regular_file(status)) continue;
            const bool taken = !hub::DataFormatOf(entry.string()).empty();
            if (taken && missing) {
                return MakeError(ErrorCode::kNotFound,
                                 "{}: the file behind this link does not exist. Restore it, or "
                                 "remove the link",
                                 entry.string());
            }
            if (taken) found.push_back(entry);
        }
        return {};
    }

    std::set<fs::path> seen_;
};

// Leaves out the files of other splits, unless all files are named so.
void LeaveOutTests(const std::string& folder, std::vector<std::string>& files, DataFileList& all) {
    // The file's own name decides, then the name of the nearest folder that names a split.
    const auto is_train = [&](const std::string& file) {
        fs::path path = fs::path(file).lexically_relative(folder);
        for (; !path.empty(); path = path.parent_path()) {
            const std::string name = path.filename();
            if (HasWord(name, kTrainWords)) return true;
            if (HasWord(name, kTestWords)) return false;
        }
        return true;
    };
    if (std::ranges::none_of(files, is_train)) return;
    const auto others = std::stable_partition(files.begin(), files.end(), is_train);
    all.left_out.insert(all.left_out.end(), others, files.end());
    files.erase(others, files.end());
}

Status AddFolder(const std::string& folder, DataFileList& all) {
    FolderWalk walk;
    WEFT_TRY(walk.Run(folder));
    if (walk.found.empty()) {
        return MakeError(ErrorCode::kNotFound, "{}: no file in this folder ends in {}", folder,
                         kTakenNames);
    }
    std::ranges::sort(walk.found);
    LeaveOutTests(folder, walk.found, all);
    all.files.insert(all.files.end(), walk.found.begin(), walk.found.end());
    return {};
}

}  // namespace

Result<DataFileList> DataFiles(const std::vector<std::string>& paths) {
    DataFileList all;
    for (const std::string& path : paths) {
        std::error_code error;
        if (hub::IsDataSpec(path)) {
            WEFT_ASSIGN(const hub::RepoSpec spec, hub::ParseSpec(path));
            WEFT_ASSIGN(const hub::Config config, hub::ConfigFromEnvironment());
            WEFT_ASSIGN(const std::vector<std::string> files, hub::FindCachedData(config, spec));
            all.files.insert(all.files.end(), files.begin(), files.end());
            all.from_folder = true;
        } else if (fs::is_directory(path, error)) {
            WEFT_TRY(AddFolder(path, all));
            all.from_folder = true;
        } else {
            all.files.push_back(path);  // opening it reports the error
        }
        all.ends.push_back(all.files.size());
    }
    if (all.files.size() <= hub::kMostDataFiles) return all;
    return MakeError(ErrorCode::kUnsupported,
                     "--data names {} files or more; at most {} are read. "
                     "Join them (cat)",
                     all.files.size(), hub::kMostDataFiles);
}

}  // namespace weft::train
