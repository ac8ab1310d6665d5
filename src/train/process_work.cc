#include "train/process_work.h"

#include <sys/resource.h>

namespace weft::train {
namespace {

// A unit of work, in CPU time. A process whose threads all wait wakes up now and then, and takes
// more than an hour for one unit.
constexpr int64_t kUnitMs = 2000;

int64_t CpuMs(const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

}  // namespace

int64_t ProcessWork() {
    rusage all{}, own{};
    ::getrusage(RUSAGE_SELF, &all);
    ::getrusage(RUSAGE_THREAD, &own);
    return (CpuMs(all) - CpuMs(own)) / kUnitMs + all.ru_inblock;
}

}  // namespace weft::train
