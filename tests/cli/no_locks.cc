// A file system without locks, for a program that is started with this in LD_PRELOAD.
#include <cerrno>

extern "C" int flock(int, int) {
    errno = ENOSYS;
    return -1;
}
