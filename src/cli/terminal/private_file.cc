#include "cli/terminal/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/home_folder.h"
#include "base/output_file.h"

namespace weft::cli {
std::string StateFile(const std::string& name) {
    const char* state = std::getenv("XDG_STATE_HOME");
    const std::string home = HomeFolder();
    std::string folder;
    if (state != nullptr && state[0] == '/') {
        folder = state;
    } else if (home.starts_with('/')) {
        folder = home + "/.local/state";
    } else {
        return "";
    }
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    folder += "/weft";
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return "";
    return folder + "/" + name;
}

std::string ThroughLinks(const std::string& path) {
    constexpr int kMostLinks = 40;  // as in Linux
    std::error_code failed;
    std::filesystem::path file = path;
    for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, failed); ++i) {
        file = file.parent_path() / std::filesystem::read_symlink(file, failed);
    }
    return file.string();
}

Result<std::string> CreatePrivateFile(const std::string& path) {
    std::string fresh = FreshName(path);
    const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) {
        return MakeError(ErrorCode::kIo, "{}: cannot write the file: {}", path,
                         std::strerror(errno));
    }
    return fresh;
}

}  // namespace weft::cli
