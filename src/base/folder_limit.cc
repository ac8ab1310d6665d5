#include "base/folder_limit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace weft {
namespace {

namespace fs = std::filesystem;

// The absolute path without links, "." and "..". Parts that do not exist stay. Errors: kDenied: a
// link that cannot be followed, since a new file would be created where it leads.
Result<fs::path> Resolve(const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::absolute(path, error);
    if (error) return MakeError(ErrorCode::kDenied, "{}: {}", path, error.message());
    fs::path resolved = "/";
    for (const fs::path& part : whole.relative_path()) {
        if (part == "..") {
            resolved = resolved.parent_path();
        } else if (!part.empty() && part != ".") {
            resolved /= part;
        }
        if (!fs::is_symlink(fs::symlink_status(resolved, error))) continue;
        resolved = fs::canonical(resolved, error);
        if (error) {
            return MakeError(ErrorCode::kDenied, "{}: the link {} leads to no file", path,
                             part.string());
        }
    }
    return resolved;
}

bool IsIn(const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
           folder.end();
}

}  // namespace

Result<FolderLimit> FolderLimit::Make(const std::vector<std::string>& folders) {
    FolderLimit limit;
    for (const std::string& folder : folders) {
        std::error_code error;
        const fs::path found = fs::canonical(folder, error);
        if (error || !fs::is_directory(found, error)) {
            return MakeError(ErrorCode::kUsage, "--folders {}: there is no such folder", folder);
        }
        limit.folders_.push_back(found);
        if (limit.folders_.back().find(',') != std::string::npos) {
            return MakeError(ErrorCode::kUsage, "--folders {}: the path has a comma",
                             found.string());
        }
    }
    return limit;
}

Status FolderLimit::Check(const std::string& path) const {
    if (folders_.empty() || path.empty()) return {};
    WEFT_ASSIGN(const fs::path resolved, Resolve(path));
    for (const std::string& folder : folders_) {
        if (IsIn(resolved, folder)) return {};
    }
    const std::string meant = resolved == path ? "" : fmt::format(" ({})", resolved.string());
    return MakeError(ErrorCode::kDenied,
                     "{}{} is not in {}, where this worker may read and write (--folders). Use a "
                     "path there, or start the worker with this folder, too",
                     path, meant, fmt::join(folders_, " or "));
}

}  // namespace weft
