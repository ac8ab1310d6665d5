// GPUs as devices, through the drivers of gpu/device.h. "vulkan" is the first GPU that the Vulkan
// driver lists and that is not a software GPU; ranks of one host are spread over equal GPUs.
// "vulkan:N" is the N-th device that the driver lists, including lavapipe. In the same way: "cuda",
// "cuda:N", "hip", "hip:N".
//
// Errors: kUsage (the name has another form), kUnsupported (this build has no shaders, the host
// lacks the driver's library, or the device lacks a feature), kNotFound (no such device).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/gpu/device/context.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

// Number of positions in a KV page.
inline constexpr int64_t kPageTokens = 64;

// The program::Target of all GPUs, which states their requirements on Programs.
program::Target TargetOfGpus();

// Whether `name` has the form of a GPU's name: "vulkan", "vulkan:0", "cuda:1".
bool IsName(std::string_view name);
// Checks that this build has the kernels.
Status CheckBuilt();

// ChooseGpus returns the usable GPUs that are not software GPUs, in the order in which the rank
// with number `local_rank` on its host should try them. Discrete GPUs come before GPUs that share
// the processor's memory. The local ranks begin with the GPUs of one kind in turn.
struct AutoGpu {
    std::string name;  // "vulkan:1"
    MemoryPool pool;
};
struct GpuChoice {
    std::vector<AutoGpu> gpus;
    std::string left_out;  // unusable GPUs with reasons: "vulkan:0 (...): ..."; or ""
};
// The result is empty if this build has no kernels, or the host no driver of a GPU.
GpuChoice ChooseGpus(int local_rank);

Result<DeviceInfo> Describe(const std::string& name, const DeviceOptions& options);
Result<MemoryPool> DescribePool(const std::string& name);
Result<std::shared_ptr<Device>> Open(const std::string& name, const DeviceOptions& options,
                                     const Limits& limits = {});

// The arithmetic of a device's matrix products. If `options` allows activations to be rounded, it
// is the fastest arithmetic that the device has.
Arithmetic ArithmeticOf(const gpu::Description& gpu, const DeviceOptions& options);
// Display text: "float32", "float32, int8, f16 on matrix units".
std::string ArithmeticText(const Arithmetic& arithmetic);
// The device's identity: everything about it that affects the bits.
std::string IdentityOf(const gpu::Description& gpu, bool reference, const Arithmetic& arithmetic);
// For a GPU that shares the host's memory: limits the free bytes of `pool` to host_free +
// apart_free. host_free: free host memory; 0: unknown. apart_free: the free part of the memory that
// the firmware reserved for the GPU; nullopt: the driver does not report it. The limit is needed
// because drivers such as amdgpu count only memory that GPUs have allocated, and so report too many
// free bytes. Memory that amdgpu allocates does not count toward the limits of control groups.
void TakeOfHost(const gpu::Description& gpu, std::optional<uint64_t> apart_free, uint64_t host_free,
                MemoryPool& pool);
// Returns kOutOfMemory, with the sizes, if weights, KV cache and activations do not fit into the
// free memory.
Status CheckFits(const MemoryUse& use, const MemoryPool& pool, const gpu::Description& gpu);

}  // namespace weft::backend::on_gpu
