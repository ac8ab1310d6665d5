// A file system without symbolic links, as FAT, for a program that is started with this in
// LD_PRELOAD.
#include <cerrno>

extern "C" int symlink(const char*, const char*) {
    errno = EPERM;
    return -1;
}
