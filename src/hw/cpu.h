// What this CPU can do, and which cores this process may use.
#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace weft {

// kAvx512: with VNNI and BF16. kAmx: that, and tiles of int8 and BF16. kNeon: with dot products.
// kI8mm: that, and products of int8 matrices.
enum class CpuLevel { kReference, kAvx2, kAvx512, kAmx, kNeon, kI8mm };
// Those of the architecture that this is compiled for, the better the later.
#if defined(__aarch64__)
inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kReference, CpuLevel::kNeon, CpuLevel::kI8mm};
#else
inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvx512,
                                          CpuLevel::kAmx};
#endif

struct CpuFeatures {
    bool avx2 = false;    // with FMA and F16C
    bool avx512 = false;  // F, BW, VL, DQ, VBMI
    bool avx512_vnni = false;
    bool avx512_bf16 = false;
    bool amx = false;      // TILE, INT8, BF16, and the system lets this process use them
    bool dotprod = false;  // of NEON
    bool i8mm = false;     // of NEON
    std::string model;     // "AMD EPYC"
};

// Where the CPU has AMX, asks the system for leave to use it, for all threads of this process.
CpuFeatures DetectCpu();
// The best level for which Weft has kernels. WEFT_CPU=reference|avx2|avx512|amx|neon|i8mm
// lowers it (never raises it), which is how the tests reach every level on one machine.
CpuLevel BestCpuLevel(const CpuFeatures& features);
const char* CpuLevelName(CpuLevel level);

// The cores this process may run on (sched_getaffinity), in ascending order.
std::vector<int> AllowedCores();
// The same as `get` says it: sched_getaffinity of a set of so many bytes; false with errno EINVAL
// where the kernel's is larger (above 1024 possible cores), which is then asked with larger ones.
using GetAffinity = std::function<bool(size_t bytes, cpu_set_t* set)>;
std::vector<int> AllowedCores(const GetAffinity& get);
// Lets the calling thread run on these cores alone; false where there are none, or the system
// refuses (harmless: it is only slower).
bool RunThisThreadOn(std::span<const int> cores);

// Keeps the thread that made it on these cores, and gives it back those it had in the end, for
// what the process does next. Where another thread ends it, nothing is given back.
class PinnedThread {
  public:
    explicit PinnedThread(std::span<const int> cores);
    ~PinnedThread();
    PinnedThread(const PinnedThread&) = delete;
    PinnedThread& operator=(const PinnedThread&) = delete;

  private:
    const std::thread::id owner_ = std::this_thread::get_id();
    const std::vector<int> before_ = AllowedCores();
};

// Resident set of this process, and memory that the system could still give it, in bytes.
uint64_t ResidentBytes();
uint64_t AvailableMemoryBytes();
// Of the whole machine.
uint64_t TotalMemoryBytes();

}  // namespace weft
