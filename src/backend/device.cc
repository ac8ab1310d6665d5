#include "backend/device.h"

#include "backend/cpu/cpu_device.h"

namespace weft::backend {

Status CheckDeviceName(std::string_view name) {
    if (name == "cpu") return {};
    return MakeError(ErrorCode::kUsage, "no device '{}' here; this weft has: cpu", name);
}

Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.cores = options.cores;
    cpu.cores_shared = options.cores_shared;
    cpu.level = CpuLevelFor(options.reference);
    return MakeCpuDevice(cpu);
}

Result<DeviceInfo> DescribeDevice(const std::string& name, bool reference) {
    WEFT_TRY(CheckDeviceName(name));
    return DescribeCpu(CpuLevelFor(reference));
}

}  // namespace weft::backend
