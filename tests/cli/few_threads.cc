// Simulates a system that is short of threads; loaded by LD_PRELOAD.
// WEFT_REFUSED_THREADS=FIRST:COUNT refuses COUNT calls of pthread_create from call FIRST (1, 2,
// ...) of each process on, and appends a byte per refusal to the file WEFT_REFUSALS.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<long> g_calls{0};

bool Refused() {
    const char* which = std::getenv("WEFT_REFUSED_THREADS");
    if (which == nullptr) return false;
    char* rest = nullptr;
    const long first = std::strtol(which, &rest, 10);
    const long count = *rest == ':' ? std::strtol(rest + 1, nullptr, 10) : 0;
    const long call = ++g_calls;
    return call >= first && call - first < count;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
    if (!Refused()) {
        using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
        const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
        return create(thread, attributes, body, argument);
    }
    if (const char* path = std::getenv("WEFT_REFUSALS"); path != nullptr) {
        const int fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd >= 0 && ::write(fd, ".", 1) == 1) ::close(fd);
    }
    return EAGAIN;
}
