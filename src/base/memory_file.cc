#include "base/memory_file.h"

#include <sys/mman.h>

#include <cerrno>

namespace weft {
namespace {

constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL, which older headers lack

}  // namespace

Fd MemoryFile(const char* name) {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    Fd fd(::memfd_create(name, kFlags | kNoExecSeal));
    if (!fd.valid() && errno == EINVAL) fd = Fd(::memfd_create(name, kFlags));
    return fd;
}

}  // namespace weft
