// State shared by the executables of one Vulkan device: the device and its compiled kernels.
//
// Thread: one caller, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/host_signal.h"
#include "base/deadline.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::vulkan {

// Cache of compiled kernels (compute pipelines). The arguments of Get are the key.
class KernelCache {
  public:
    explicit KernelCache(gpu::Device& device) : device_(device) {}
    // guarded: KernelCode::guarded. Errors: kUnsupported (this build lacks the shader).
    Result<const gpu::Kernel*> Get(std::string_view shader, std::vector<uint32_t> constants,
                                   uint32_t args_bytes, uint32_t subgroup, bool guarded = false);
    // A number that grows with each compiled kernel; heartbeats report it. While the driver
    // compiles a kernel, which may take many seconds, the number also grows at each call of this
    // function, but for at most kMostCompileNs. Thread: any.
    int64_t progress(int64_t now_ns = NowNs()) const;
    static constexpr int64_t kMostCompileNs = 300'000'000'000;
    // Marks the time in which the driver may compile a kernel, which is when a kernel is created or
    // runs for the first time. Callers keep an object of this class for that time.
    class Compiling {
      public:
        explicit Compiling(KernelCache& cache) : cache_(cache) {
            cache_.compiles_since_ns_.store(NowNs(), std::memory_order_relaxed);
        }
        ~Compiling() { cache_.compiles_since_ns_.store(0, std::memory_order_relaxed); }
        Compiling(const Compiling&) = delete;
        Compiling& operator=(const Compiling&) = delete;

      private:
        KernelCache& cache_;
    };

  private:
    struct Key {
        std::string shader;
        std::vector<uint32_t> constants;
        uint32_t args_bytes = 0, subgroup = 0;
        bool guarded = false;
        auto operator<=>(const Key&) const = default;
    };
    gpu::Device& device_;
    std::map<Key, std::unique_ptr<gpu::Kernel>> kernels_;
    mutable std::atomic<int64_t> progress_{0};
    std::atomic<int64_t> compiles_since_ns_{0};  // 0: no kernel is being compiled
};

// Limits that tests override.
struct Limits {
    double most_seconds = 0.2;  // maximum seconds of a submission, for the watchdog
    bool maps_memory = true;    // false: act as if the host could not map device memory
    bool fuses = true;
    std::optional<Arithmetic> arithmetic{};  // replaces the device's arithmetic
};

struct Context {
    Context(std::shared_ptr<gpu::Device> opened, std::string device_name, bool is_reference,
            const Arithmetic& uses = {})
        : gpu(std::move(opened)),
          kernels(*gpu),
          name(std::move(device_name)),
          reference(is_reference),
          arithmetic(uses) {}
    // "vulkan:0 (AMD Radeon 8060S)"
    std::string Who() const { return name + " (" + gpu->description().name + ")"; }

    std::shared_ptr<gpu::Device> gpu;
    KernelCache kernels;
    std::string name;
    bool reference;
    Arithmetic arithmetic;
    Limits limits;
    // Created when the first executable that may use the signal is loaded. The signal may not work
    // on this device (HostSignal::works).
    std::unique_ptr<HostSignal> signal;
    std::atomic<uint64_t> held_bytes{0};     // bytes held by all executables
    std::atomic<bool> hangs{false};          // the device missed a deadline
    std::atomic<double> longest_seconds{0};  // of a submission that waits for no host signal
    std::mutex mutex;                        // guards `gpu` while weights are loaded
};

}  // namespace weft::backend::vulkan
