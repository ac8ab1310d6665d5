// State shared by the executables of one Vulkan device: the device and its compiled kernels.
//
// Thread: one caller, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/gpu/device/host_signal.h"
#include "backend/gpu/device/kernel_cache.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

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
    std::atomic<double> longest_seconds{0};  // longest submission without a wait for the host
    std::mutex mutex;                        // guards `gpu` while weights are loaded
};

}  // namespace weft::backend::on_gpu
