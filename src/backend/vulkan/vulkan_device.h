// GPUs through Vulkan as devices: "vulkan" is the first that is no processor (the ranks of one host
// share out equals among themselves), "vulkan:N" the N-th that the loader lists, lavapipe too.
//
// Errors: kUsage (a name of another form), kUnsupported (this weft has no shaders, or the machine
// no loader; the device lacks a feature), kNotFound (no such device).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/vulkan/context.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::vulkan {

// Positions of a KV page.
inline constexpr int64_t kPageTokens = 64;

// What all of them ask of Programs.
program::Target TargetOfGpus();

// "vulkan", "vulkan:0".
bool IsName(std::string_view name);
// Whether this weft has kernels for it.
Status CheckBuilt();

// GPUs that can be used and are no processor, in the order in which rank `local_rank` of a host
// takes them: cards before what shares the processor's memory; of several of one kind each rank
// begins with another.
struct AutoGpu {
    std::string name;  // "vulkan:1"
    MemoryPool pool;
};
struct GpuChoice {
    std::vector<AutoGpu> gpus;
    std::string left_out;  // those that can't be used, and why: "vulkan:0 (...): ..."; ""
};
// Empty where this weft or the machine has no Vulkan.
GpuChoice ChooseGpus(int local_rank);

Result<DeviceInfo> Describe(const std::string& name, const DeviceOptions& options);
Result<MemoryPool> DescribePool(const std::string& name);
Result<std::shared_ptr<Device>> Open(const std::string& name, const DeviceOptions& options,
                                     const Limits& limits = {});

// What products of a device use: what it is fast at, where `options` allow it to round activations.
Arithmetic ArithmeticOf(const gpu::Description& gpu, const DeviceOptions& options);
// For people: "float32", "float32, int8, f16 on matrix units".
std::string ArithmeticText(const Arithmetic& arithmetic);
// Of a device: what it computes with, as far as bits depend on it.
std::string IdentityOf(const gpu::Description& gpu, bool reference, const Arithmetic& arithmetic);
// What a GPU that has its memory with the host has of it beside what the firmware set apart
// (`apart_free`; none: the driver does not say): no more than the host has free (0: not known).
// Drivers that count what GPUs hold alone (amdgpu) promise more; pages that amdgpu takes are in no
// control group.
void TakeOfHost(const gpu::Description& gpu, std::optional<uint64_t> apart_free, uint64_t host_free,
                MemoryPool& pool);
// Why weights, KV cache and activations do not fit into what is free.
Status CheckFits(const MemoryUse& use, const MemoryPool& pool, const gpu::Description& gpu);

}  // namespace weft::backend::vulkan
