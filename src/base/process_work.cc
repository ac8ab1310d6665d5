#include "base/process_work.h"

#include <sys/resource.h>

#include <cstdio>

namespace weft {
namespace {

// Units of work. A process whose threads all wait still wakes up at times: it needs more than an
// hour for one unit of CPU time, and reads nothing.
constexpr int64_t kUnitMs = 2000;
constexpr int64_t kUnitBytes = 64 << 10;

int64_t CpuMs(const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

// Bytes from read calls (proc(5)), wherever they come from; 0: unknown.
int64_t ReadBytes(const char* path) {
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return 0;
    long long bytes = 0;
    if (std::fscanf(file, "rchar: %lld", &bytes) != 1) bytes = 0;
    std::fclose(file);
    return bytes;
}

}  // namespace

int64_t ProcessWork() {
    rusage all{}, own{};
    ::getrusage(RUSAGE_SELF, &all);
    ::getrusage(RUSAGE_THREAD, &own);
    const int64_t read_bytes = ReadBytes("/proc/self/io") - ReadBytes("/proc/thread-self/io");
    return (CpuMs(all) - CpuMs(own)) / kUnitMs + read_bytes / kUnitBytes + all.ru_majflt;
}

}  // namespace weft
