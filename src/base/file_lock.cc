#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/deadline.h"

namespace weft {

Status LockOpenFile(int fd, const std::string& name, int64_t wait_ms) {
    constexpr useconds_t kPollUs = 1000;
    const Deadline deadline = Deadline::In(wait_ms);
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return MakeError(ErrorCode::kIo, "{}: cannot lock it: {}", name, std::strerror(errno));
        }
        if (deadline.expired()) {
            return MakeError(ErrorCode::kTimeout,
                             "{}: another process has held its lock for {} ms. Is it stopped?",
                             name, wait_ms);
        }
        ::usleep(kPollUs);
    }
    return {};
}

Result<FileLock> FileLock::Take(const std::string& path, int64_t wait_ms) {
    const std::string name = path + ".lock";
    const std::filesystem::path folder = std::filesystem::path(name).parent_path();
    std::error_code failed;
    if (!folder.empty()) std::filesystem::create_directories(folder, failed);
    if (failed) return MakeError(ErrorCode::kIo, "{}: {}", folder.string(), failed.message());
    Fd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) {
        return MakeError(ErrorCode::kIo, "{}: cannot open it: {}", name, std::strerror(errno));
    }
    const Status locked = LockOpenFile(fd.get(), name, wait_ms);
    if (!locked.ok() && locked.error().code == ErrorCode::kTimeout) return locked.error();
    return FileLock(std::move(fd));
}

}  // namespace weft
