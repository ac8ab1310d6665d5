#include "backend/device.h"

#include "backend/cpu/cpu_device.h"
#include "backend/vulkan/vulkan_device.h"

namespace weft::backend {
namespace {

constexpr std::string_view kAuto = "auto", kCpu = "cpu";

// What `auto` is here.
std::string NameOf(const std::string& name, bool trains) {
    if (name != kAuto) return name;
    const std::string gpu = trains ? "" : vulkan::BestName();
    return gpu.empty() ? std::string(kCpu) : gpu;
}

// The fast kernels round activations: to int8 for quantized weights, to BF16 for those of BF16.
CpuLevel LevelFor(const DeviceOptions& options) {
    return CpuLevelFor(options.reference || options.exact);
}

}  // namespace

Status CheckDeviceName(std::string_view name) {
    if (name == kCpu || name == kAuto) return {};
    if (vulkan::IsName(name)) return vulkan::CheckBuilt();
    return MakeError(ErrorCode::kUsage, "no device '{}'; this weft has: {}", name, kDeviceNames);
}

Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    const std::string chosen = NameOf(name, options.trains);
    // (auto: the ranks of a host share out its GPUs, as for `vulkan`.)
    if (vulkan::IsName(chosen)) return vulkan::Open(name == kAuto ? "vulkan" : name, options);
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.cores = options.cores;
    cpu.cores_shared = options.cores_shared;
    cpu.level = LevelFor(options);
    return MakeCpuDevice(cpu);
}

Result<DeviceInfo> DescribeDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    const std::string chosen = NameOf(name, false);
    if (vulkan::IsName(chosen)) return vulkan::Describe(chosen, options);
    return DescribeCpu(LevelFor(options));
}

Result<MemoryPool> DescribePool(const std::string& name) {
    WEFT_TRY(CheckDeviceName(name));
    const std::string chosen = NameOf(name, false);
    return vulkan::IsName(chosen) ? vulkan::DescribePool(chosen) : Result(CpuPool());
}

}  // namespace weft::backend
