// Detects the CPU's features, the cores this process may use, and memory.
#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace weft {

// kAvxVnni is kAvx2 plus dot products of bytes, 256 bits wide. kAvx512 includes VNNI and BF16; a
// CPU with kAvx512 may lack kAvxVnni. kAmx is kAvx512 plus the tile instructions for int8 and BF16.
// kNeon includes dot products. kI8mm is kNeon plus products of int8 matrices.
enum class CpuLevel { kReference, kAvx2, kAvxVnni, kAvx512, kAmx, kNeon, kI8mm };
// The levels of the architecture for which this program is compiled, the best one last.
#if defined(__aarch64__)
inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kReference, CpuLevel::kNeon, CpuLevel::kI8mm};
#else
inline constexpr CpuLevel kCpuLevels[] = {CpuLevel::kReference, CpuLevel::kAvx2, CpuLevel::kAvxVnni,
                                          CpuLevel::kAvx512, CpuLevel::kAmx};
#endif

struct CpuFeatures {
    bool avx2 = false;      // with FMA and F16C
    bool avx_vnni = false;  // dot products of bytes without AVX-512, with avx2
    bool avx512 = false;    // F, BW, VL, DQ, VBMI
    bool avx512_vnni = false;
    bool avx512_bf16 = false;
    bool amx = false;      // TILE, INT8, BF16, and the kernel permits this process to use them
    bool dotprod = false;  // NEON dot products
    bool i8mm = false;     // NEON products of int8 matrices
    std::string model;     // "AMD EPYC"
};

// On a CPU with AMX, also requests permission to use AMX, for all threads of this process.
CpuFeatures DetectCpu();
// The levels that a CPU with these features can run, in ascending order. The environment variable
// WEFT_CPU=reference|avx2|avxvnni|avx512|amx|neon|i8mm removes the levels above the given one, so
// that tests can use several levels on one machine.
std::vector<CpuLevel> UsableCpuLevels(const CpuFeatures& features);
// The last of UsableCpuLevels, which is the fastest.
CpuLevel BestCpuLevel(const CpuFeatures& features);
const char* CpuLevelName(CpuLevel level);

// The cores this process may run on (sched_getaffinity), in ascending order.
std::vector<int> AllowedCores();
// As the function above, with `get` in place of sched_getaffinity. `get` fills a set of `bytes`
// bytes. If the kernel's set is larger (more than 1024 possible cores), `get` returns false with
// errno EINVAL, and is called again with a larger set.
using GetAffinity = std::function<bool(size_t bytes, cpu_set_t* set)>;
std::vector<int> AllowedCores(const GetAffinity& get);
// Restricts the calling thread to these cores. Returns false if `cores` is empty or the system
// refuses. A refusal is harmless: the thread may only be slower.
bool RunThisThreadOn(std::span<const int> cores);

// The constructor pins the calling thread to these cores. The destructor restores the cores that
// the thread had before; if another thread runs the destructor, it restores nothing.
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

// ResidentBytes: resident set size of this process. AvailableMemoryBytes: memory that the system
// can still give to this process.
uint64_t ResidentBytes();
uint64_t AvailableMemoryBytes();
// Memory of the whole machine, in bytes.
uint64_t TotalMemoryBytes();

}  // namespace weft
