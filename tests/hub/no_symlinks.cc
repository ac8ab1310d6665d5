// Simulates a file system without symbolic links, such as FAT, for a program that is started with
// this library in LD_PRELOAD.
#include <cerrno>

extern "C" int symlink(const char*, const char*) {
    errno = EPERM;
    return -1;
}
