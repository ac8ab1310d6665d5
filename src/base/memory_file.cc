#include "base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

namespace weft {
namespace {

constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, which older headers lack

}  // namespace

Fd SealableFile(const char* name) {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    Fd fd(::memfd_create(name, kFlags | kNoExecSeal));
    if (!fd.valid() && errno == EINVAL) fd = Fd(::memfd_create(name, kFlags));
    return fd;
}

Fd MemoryFile(const char* name) {
    Fd fd = SealableFile(name);
    if (!fd.valid()) fd = Fd(::open("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    return fd;
}

}  // namespace weft
