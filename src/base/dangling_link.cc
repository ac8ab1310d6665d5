#include "base/dangling_link.h"

#include <fmt/format.h>

#include <filesystem>

namespace weft {

std::string DanglingLink(const std::string& path) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error || std::filesystem::exists(path, error) || error) return "";
    return fmt::format(
        "is a link to {}, which does not exist. Download the file again; 'cp -L' copies a folder "
        "with the files that its links name",
        target.string());
}

bool IsListed(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

}  // namespace weft
