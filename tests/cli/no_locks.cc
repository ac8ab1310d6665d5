// Simulates a file system without locks; loaded by LD_PRELOAD.
#include <cerrno>

extern "C" int flock(int, int) {
    errno = ENOSYS;
    return -1;
}
