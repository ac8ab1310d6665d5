#include "backend/device.h"

#include <span>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/placed/placed_device.h"
#include "base/log.h"

namespace weft::backend {
namespace {

constexpr std::string_view kAuto = kAutoDevice, kCpu = "cpu";

// The fast kernels round activations: to int8 for quantized weights, to BF16 for BF16 weights.
CpuLevel LevelFor(const DeviceOptions& options) {
    return CpuLevelFor(options.reference || options.exact);
}

std::shared_ptr<Device> OpenCpu(const DeviceOptions& options) {
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.cores = options.cores;
    cpu.cores_shared = options.cores_shared;
    cpu.level = LevelFor(options);
    if (const CpuLevel best = BestCpuLevel(DetectCpu());
        cpu.level != best && !options.reference && !options.exact) {
        Log(LogLevel::kWarning,
            "this weft has no {} kernels: it computes with {} kernels, which are slower. It was "
            "built for another processor; to build all kernels, run 'cmake --preset release "
            "-DWEFT_CPU_LEVELS=all && cmake --build build --target weft'",
            CpuLevelName(best), CpuLevelName(cpu.level));
    }
    return MakeCpuDevice(cpu);
}

Result<std::shared_ptr<Device>> OpenNamed(const std::string& name, const DeviceOptions& options) {
    if (!on_gpu::IsName(name)) return OpenCpu(options);
    WEFT_ASSIGN(std::shared_ptr<Device> gpu, on_gpu::Open(name, options));
    if (!options.host_ops.any()) return gpu;
    program::HostOps host_ops = options.host_ops;
    // A GPU that is emulated computes slower than the processor that emulates it.
    if (gpu->info().uses_host_cores && host_ops.stream_rows < 0) host_ops.stream_rows = 0;
    return MakePlacedDevice(std::move(gpu), OpenCpu(options), host_ops);
}

}  // namespace

Status CheckDeviceName(std::string_view name) {
    if (name == kCpu || name == kAuto) return {};
    if (on_gpu::IsName(name)) return on_gpu::CheckBuilt();
    return MakeError(ErrorCode::kUsage, "no device '{}'; this weft has: {}", name, kDeviceNames);
}

Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    if (name != kAuto) return OpenNamed(name, options);
    const std::vector<std::string> names = ChooseAuto(options).names;
    for (const std::string& gpu : std::span(names).first(names.size() - 1)) {
        auto device = OpenNamed(gpu, options);
        if (device.ok()) return device;
        Log(LogLevel::kWarning, "--device auto does not use {}: {}", gpu, device.error().message);
    }
    return OpenNamed(names.back(), options);
}

Result<DeviceInfo> DescribeDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    const std::string chosen = name == kAuto ? ChooseAuto(options).names[0] : name;
    const DeviceInfo host = DescribeCpu(LevelFor(options));
    if (!on_gpu::IsName(chosen)) return host;
    WEFT_ASSIGN(DeviceInfo gpu, on_gpu::Describe(chosen, options));
    return options.host_ops.any() ? DescribePlaced(std::move(gpu), host, options.host_ops)
                                  : std::move(gpu);
}

Result<MemoryPool> DescribePool(const std::string& name) {
    WEFT_TRY(CheckDeviceName(name));
    return on_gpu::IsName(name) ? on_gpu::DescribePool(name) : Result(CpuPool());
}

AutoChoice ChooseAuto(const DeviceOptions& options) {
    AutoChoice choice;
    on_gpu::GpuChoice gpus = on_gpu::ChooseGpus(options.local_rank);
    for (on_gpu::AutoGpu& gpu : gpus.gpus) choice.names.push_back(std::move(gpu.name));
    choice.left_out = std::move(gpus.left_out);
    choice.names.emplace_back(kCpu);
    return choice;
}

}  // namespace weft::backend
