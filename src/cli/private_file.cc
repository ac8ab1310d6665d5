#include "cli/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/fd.h"
#include "base/home_folder.h"
#include "base/output_file.h"

namespace weft::cli {
namespace {

Error CannotWrite(const std::string& path) {
    const int reason = errno;
    return MakeError(reason == EACCES || reason == EPERM ? ErrorCode::kDenied : ErrorCode::kIo,
                     "{}: cannot write the file: {}", path, std::strerror(reason));
}

}  // namespace

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

Result<std::string> CreatePrivateFile(const std::string& path) {
    std::string fresh = FreshName(path);
    const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return CannotWrite(path);
    return fresh;
}

Status WritePrivateFile(const std::string& path, std::string_view text) {
    WEFT_ASSIGN(const std::string fresh, CreatePrivateFile(path));
    Status written;
    {
        const Fd file(::open(fresh.c_str(), O_WRONLY | O_CLOEXEC));
        while (!text.empty() && written.ok()) {
            const ssize_t put = ::write(file.get(), text.data(), text.size());
            if (put > 0) text.remove_prefix(static_cast<size_t>(put));
            if (put < 0 && errno != EINTR) written = CannotWrite(path);
        }
    }
    if (written.ok() && std::rename(fresh.c_str(), path.c_str()) != 0) written = CannotWrite(path);
    if (!written.ok()) ::unlink(fresh.c_str());
    return written;
}

}  // namespace weft::cli
