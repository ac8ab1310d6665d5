#include "hw/cpu.h"

#include <sched.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/check.h"

namespace weft {
namespace {

constexpr int kMostCores = 1 << 18;  // more than any kernel supports

std::string CpuModel() {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
        if (line.starts_with("CPU part") && colon != std::string::npos) {  // Arm CPUs
            return "part " + line.substr(colon + 2);
        }
    }
    return "unknown CPU";
}

#if defined(__x86_64__)
// Tiles have 8 KB of registers, which the kernel saves only for processes that have requested it.
bool MayUseTiles() {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// A cpu_set_t whose size is set at run time.
class CoreSet {
  public:
    explicit CoreSet(int cores)
        : set_(CPU_ALLOC(static_cast<size_t>(cores))),
          bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(cores))) {
        WEFT_CHECK(set_ != nullptr);
        CPU_ZERO_S(bytes_, set_);
    }
    ~CoreSet() { CPU_FREE(set_); }
    CoreSet(const CoreSet&) = delete;
    CoreSet& operator=(const CoreSet&) = delete;
    cpu_set_t* get() const { return set_; }
    size_t bytes() const { return bytes_; }

  private:
    cpu_set_t* set_;
    size_t bytes_;
};

}  // namespace

CpuFeatures DetectCpu() {
    CpuFeatures features;
#if defined(__x86_64__)
    __builtin_cpu_init();
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
    features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
    features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi");
    features.avx512_vnni = __builtin_cpu_supports("avx512vnni");
    const unsigned newer = __get_cpuid_count(7, 1, &a, &b, &c, &d) ? a : 0;
    features.avx_vnni = features.avx2 && (newer & (1u << 4)) != 0;
    features.avx512_bf16 = features.avx512 && (newer & (1u << 5)) != 0;
    constexpr unsigned kAmxBits = 1u << 22 | 1u << 24 | 1u << 25;  // BF16, TILE, INT8
    features.amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmxBits) == kAmxBits &&
                   features.avx512_bf16 && MayUseTiles();
#elif defined(__aarch64__)
    features.dotprod = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    features.i8mm = (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#endif
    features.model = CpuModel();
    return features;
}

std::vector<CpuLevel> UsableCpuLevels(const CpuFeatures& features) {
    const bool avx512 = features.avx512 && features.avx512_vnni && features.avx512_bf16;
    std::vector<CpuLevel> levels = {CpuLevel::kReference};
    if (features.avx2) levels.push_back(CpuLevel::kAvx2);
    if (features.avx2 && features.avx_vnni) levels.push_back(CpuLevel::kAvxVnni);
    if (avx512) levels.push_back(CpuLevel::kAvx512);
    if (avx512 && features.amx) levels.push_back(CpuLevel::kAmx);
    if (features.dotprod) levels.push_back(CpuLevel::kNeon);
    if (features.dotprod && features.i8mm) levels.push_back(CpuLevel::kI8mm);
    const char* wish = std::getenv("WEFT_CPU");
    for (const CpuLevel highest : kCpuLevels) {
        if (wish == nullptr || std::string_view(wish) != CpuLevelName(highest)) continue;
        std::erase_if(levels, [&](CpuLevel level) { return level > highest; });
    }
    return levels;
}

CpuLevel BestCpuLevel(const CpuFeatures& features) {
    return UsableCpuLevels(features).back();
}

const char* CpuLevelName(CpuLevel level) {
    switch (level) {
        case CpuLevel::kReference: return "reference";
        case CpuLevel::kAvx2: return "avx2";
        case CpuLevel::kAvxVnni: return "avxvnni";
        case CpuLevel::kAvx512: return "avx512";
        case CpuLevel::kAmx: return "amx";
        case CpuLevel::kNeon: return "neon";
        case CpuLevel::kI8mm: return "i8mm";
    }
    return "";
}

std::vector<int> AllowedCores(const GetAffinity& get) {
    std::vector<int> cores;
    for (int size = CPU_SETSIZE; size <= kMostCores && cores.empty(); size *= 2) {
        const CoreSet set(size);
        if (!get(set.bytes(), set.get())) {
            if (errno == EINVAL) continue;  // the kernel's set is larger
            break;
        }
        for (int core = 0; core < size; ++core) {
            if (CPU_ISSET_S(static_cast<size_t>(core), set.bytes(), set.get())) {
                cores.push_back(core);
            }
        }
    }
    if (cores.empty()) cores.push_back(0);
    return cores;
}

std::vector<int> AllowedCores() {
    return AllowedCores(
        [](size_t bytes, cpu_set_t* set) { return ::sched_getaffinity(0, bytes, set) == 0; });
}

bool RunThisThreadOn(std::span<const int> cores) {
    if (cores.empty()) return false;
    const int highest = std::clamp(*std::ranges::max_element(cores), 0, kMostCores - 1);
    const CoreSet set(std::max(highest + 1, CPU_SETSIZE));
    for (const int core : cores) {
        if (core < 0 || core > highest) continue;
        CPU_SET_S(static_cast<size_t>(core), set.bytes(), set.get());
    }
    return ::sched_setaffinity(0, set.bytes(), set.get()) == 0;
}

PinnedThread::PinnedThread(std::span<const int> cores) {
    RunThisThreadOn(cores);
}

PinnedThread::~PinnedThread() {
    if (owner_ == std::this_thread::get_id()) RunThisThreadOn(before_);
}

}  // namespace weft
