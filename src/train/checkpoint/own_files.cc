#include "train/checkpoint/own_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/fd.h"
#include "base/file.h"
#include "train/checkpoint/manifest.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPart = ".part";  // of OutputFile

Error CannotRemove(const std::string& path, int error) {
    return MakeError(ErrorCode::kIo, "{}: cannot remove it: {}", path, std::strerror(error));
}

std::string_view WithoutPart(std::string_view name) {
    if (name.ends_with(kPart)) name.remove_suffix(kPart.size());
    return name;
}

// "rank-00000-0a1b2c3d.safetensors", also of a save that did not finish.
bool IsRankName(std::string_view name) {
    constexpr std::string_view kPrefix = "rank-", kSuffix = ".safetensors";
    name = WithoutPart(name);
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
    return name.find_first_not_of("0123456789abcdef-", kPrefix.size()) ==
           name.size() - kSuffix.size();
}

bool IsManifestName(std::string_view name) {
    return WithoutPart(name) == kManifestName;
}

struct Entry {
    std::string name;
    bool regular;
};

// Does not follow a link in the place of the folder.
Result<std::vector<Entry>> EntriesOf(const std::string& folder, Fd& opened) {
    opened = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!opened.valid()) return CannotRemove(folder, errno);
    DIR* const listed = ::fdopendir(::dup(opened.get()));
    if (listed == nullptr) return CannotRemove(folder, errno);
    std::vector<Entry> entries;
    while (const dirent* const at = ::readdir(listed)) {
        const std::string name = at->d_name;
        struct stat status {};
        if (name == "." || name == "..") continue;
        const bool found = ::fstatat(opened.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
        entries.push_back({name, found && S_ISREG(status.st_mode)});
    }
    ::closedir(listed);
    return entries;
}

}  // namespace

bool HasOwnManifest(const std::string& folder) {
    const auto text = ReadTextFile(folder + "/" + kManifestName, kMostManifestBytes);
    return text.ok() && text->find(kManifestFormat) != text->npos;
}

Status RemoveOwnFiles(const std::string& folder, const IsOwnName& is_own, std::string_view first) {
    std::error_code failed;
    const fs::file_status status = fs::symlink_status(folder, failed);
    if (status.type() == fs::file_type::not_found) return {};
    if (status.type() == fs::file_type::symlink) {
        if (::unlink(folder.c_str()) == 0 || errno == ENOENT) return {};
        return CannotRemove(folder, errno);
    }
    Fd opened;
    WEFT_ASSIGN(std::vector<Entry> entries, EntriesOf(folder, opened));
    std::stable_partition(entries.begin(), entries.end(),
                          [&](const Entry& entry) { return entry.name == first; });
    for (const Entry& entry : entries) {
        if (!entry.regular || !is_own(entry.name)) continue;
        if (::unlinkat(opened.get(), entry.name.c_str(), 0) == 0 || errno == ENOENT) continue;
        return CannotRemove(folder + "/" + entry.name, errno);
    }
    if (::rmdir(folder.c_str()) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) {
        return {};
    }
    return CannotRemove(folder, errno);
}

StepContent ContentOfStep(const std::string& folder) {
    Fd opened;
    const auto entries = EntriesOf(folder, opened);
    if (!entries.ok()) return StepContent::kForeign;
    if (entries->empty()) return StepContent::kEmpty;
    const bool own = std::ranges::any_of(
        *entries, [](const Entry& entry) { return entry.regular && IsRankName(entry.name); });
    return own || HasOwnManifest(folder) ? StepContent::kOwn : StepContent::kForeign;
}

Status RemoveStepFiles(const std::string& folder) {
    std::error_code failed;
    const bool link = fs::is_symlink(folder, failed);
    if (!link && ContentOfStep(folder) == StepContent::kForeign) return {};
    const auto is_own = [](std::string_view name) {
        return IsRankName(name) || IsManifestName(name);
    };
    return RemoveOwnFiles(folder, is_own, kManifestName);
}

Status RemoveRankFiles(const std::string& folder, const IsOwnName& kept) {
    return RemoveOwnFiles(folder,
                          [&](std::string_view name) { return IsRankName(name) && !kept(name); });
}

}  // namespace weft::train
