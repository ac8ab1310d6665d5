// Simulates a slow disk, for a program that is started with this library in LD_PRELOAD: reading
// back a large piece of a file, and waiting until a piece is on the disk, take some time.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>

namespace {

void Work() {
    ::poll(nullptr, 0, 300);
}

}  // namespace

extern "C" ssize_t pread(int fd, void* buffer, size_t size, off_t at) {
    using Read = ssize_t (*)(int, void*, size_t, off_t);
    static const auto read = reinterpret_cast<Read>(::dlsym(RTLD_NEXT, "pread"));
    if (size >= (4 << 20)) Work();
    return read(fd, buffer, size, at);
}

extern "C" int sync_file_range(int fd, off_t at, off_t size, unsigned flags) {
    using Sync = int (*)(int, off_t, off_t, unsigned);
    static const auto sync = reinterpret_cast<Sync>(::dlsym(RTLD_NEXT, "sync_file_range"));
    if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0) Work();
    return sync(fd, at, size, flags);
}
