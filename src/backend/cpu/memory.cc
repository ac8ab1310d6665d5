#include "backend/cpu/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/fd.h"

namespace weft::backend {
namespace {

Error DriveError(const std::string& folder, const char* what, int error) {
    return MakeError(ErrorCode::kIo,
                     "{}: no file for {}: {}. Name a folder of a drive "
                     "that this user may write",
                     folder, what, std::strerror(error));
}

// A file that no folder lists.
Result<Fd> OpenUnnamed(const std::string& folder, const char* what) {
    Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file.valid()) return file;
    if (errno != EOPNOTSUPP && errno != EISDIR) return DriveError(folder, what, errno);
    std::string name = folder + "/weft-XXXXXX";  // (not every file system has such files)
    file = Fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!file.valid()) return DriveError(folder, what, errno);
    ::unlink(name.c_str());
    return file;
}

}  // namespace

Result<Memory> Memory::Allocate(int64_t bytes, const char* what) {
    Memory memory;
    if (bytes == 0) return memory;
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return MakeError(ErrorCode::kOutOfMemory, "no {} bytes of memory for {}: {}", bytes, what,
                         std::strerror(errno));
    }
    // Without huge pages, kernels are a few percent slower.
    ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_bytes_ = bytes;
    return memory;
}

Result<Memory> Memory::OnDrive(const std::string& folder, int64_t bytes, const char* what) {
    WEFT_ASSIGN(const Fd file, OpenUnnamed(folder, what));
    struct statfs system {};
    const bool known = ::fstatfs(file.get(), &system) == 0;
    if (known && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
        return MakeError(ErrorCode::kUsage,
                         "{}: files there are in memory (tmpfs). Name a folder on a drive", folder);
    }
    if (const int error = ::posix_fallocate(file.get(), 0, bytes); error != 0) {
        return MakeError(ErrorCode::kIo,
                         "{}: no room of {} for {}: {}. Name a folder of a drive with more "
                         "room",
                         folder, BytesText(static_cast<uint64_t>(bytes)), what,
                         std::strerror(error));
    }
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                        file.get(), 0);
    if (data == MAP_FAILED) return DriveError(folder, what, errno);
    // Each update passes through it once.
    ::madvise(data, static_cast<size_t>(bytes), MADV_SEQUENTIAL);
    Memory memory;
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_bytes_ = bytes;
    return memory;
}

}  // namespace weft::backend
