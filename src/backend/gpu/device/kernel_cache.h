// Compiled kernels: a device's cache, and the folder and checksum for kernels on disk.
//
// Thread: one caller, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

// The folder for compiled kernels and tuned shapes; "": none.
std::string KernelFolder();
// A checksum of all shaders of this build: other kernels may round differently.
uint64_t ShaderBuild();

// kStopWord: the kernel does nothing in an abandoned submission (KernelCode::guarded).
enum class Guard { kNone, kStopWord };

// Cache of compiled kernels (compute pipelines). The arguments of Get are the key.
class KernelCache {
  public:
    explicit KernelCache(gpu::Device& device) : device_(device) {}
    // While `stopped` returns true, Get creates no kernel.
    void SetStopped(std::function<bool()> stopped) { stopped_ = std::move(stopped); }
    // Errors: kUnsupported (this build lacks the shader), kCancelled (SetStopped).
    Result<const gpu::Kernel*> Get(std::string_view shader, std::vector<uint32_t> constants,
                                   uint32_t args_bytes, uint32_t subgroup,
                                   Guard guard = Guard::kNone);
    // A number that grows with each compiled kernel; heartbeats report it. While the driver
    // compiles kernels, which may take minutes, the number also grows at each call of this
    // function, but for at most kMostCompileNs. Thread: any.
    int64_t progress(int64_t now_ns = NowNs()) const;
    static constexpr int64_t kMostCompileNs = 900'000'000'000;
    // Marks the time in which the driver may compile kernels, which is when a kernel is created,
    // when a recording ends, or when a kernel runs for the first time. Callers keep an object of
    // this class for that time.
    class Compiling {
      public:
        explicit Compiling(KernelCache& cache)
            : cache_(cache),
              before_(cache_.compiles_since_ns_.exchange(NowNs(), std::memory_order_relaxed)) {}
        ~Compiling() { cache_.compiles_since_ns_.store(before_, std::memory_order_relaxed); }
        Compiling(const Compiling&) = delete;
        Compiling& operator=(const Compiling&) = delete;

      private:
        KernelCache& cache_;
        const int64_t before_;
    };

  private:
    struct Key {
        std::string shader;
        std::vector<uint32_t> constants;
        uint32_t args_bytes = 0, subgroup = 0;
        Guard guard = Guard::kNone;
        auto operator<=>(const Key&) const = default;
    };
    gpu::Device& device_;
    std::function<bool()> stopped_;
    std::map<Key, std::unique_ptr<gpu::Kernel>> kernels_;
    mutable std::atomic<int64_t> progress_{0};
    std::atomic<int64_t> compiles_since_ns_{0};  // 0: no kernel is being compiled
};

}  // namespace weft::backend::on_gpu
