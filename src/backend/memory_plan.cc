#include "backend/memory_plan.h"

#include "backend/cpu/compile.h"
#include "backend/cpu/cpu_device.h"
#include "backend/vulkan/dry_run.h"
#include "backend/vulkan/tune/tune.h"
#include "backend/vulkan/vulkan_device.h"

namespace weft::backend {

const char* NameOf(MemoryKind kind) {
    return kind == MemoryKind::kHost ? "cpu" : "vulkan";
}

std::string ProductsOf(const gpu::Description& gpu) {
    return vulkan::ArithmeticText(vulkan::ArithmeticOf(gpu, {}));
}

std::string TilesOf(const gpu::Description& gpu) {
    return vulkan::TunedText(gpu);
}

program::Target TargetOf(const DescribedDevice& device) {
    return device.kind == MemoryKind::kHost ? DescribeCpu(CpuLevelFor(device.reference)).target
                                            : vulkan::TargetOfGpus();
}

Result<MemoryUse> PlanMemory(const program::ChunkedProgram& program, const CompileOptions& options,
                             const DescribedDevice& device) {
    if (device.kind == MemoryKind::kHost) {
        return PlanCpuMemory(program, options, CpuLevelFor(device.reference), device.threads);
    }
    return vulkan::PlanMemory(program.program, options, vulkan::CommonGpu(), {});
}

}  // namespace weft::backend
