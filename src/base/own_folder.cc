#include "base/own_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/confine.h"

namespace weft {

Status MakeOwnFolder(std::string_view flag, const std::string& folder) {
    WEFT_TRY(CheckConfined(folder));
    std::error_code failed;
    const auto parent = std::filesystem::path(folder).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, failed);
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        return MakeError(ErrorCode::kIo, "{} {}: cannot create the folder: {}", flag, folder,
                         std::strerror(errno));
    }
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        return MakeError(ErrorCode::kIo, "{} {}: it is not a folder", flag, folder);
    }
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return MakeError(ErrorCode::kDenied,
                         "{} {}: other users may write this folder (mode {:o}), and could change "
                         "answers. Make a folder of your own, or run chmod 700 on it",
                         flag, folder, info.st_mode & 07777);
    }
    return {};
}

}  // namespace weft
