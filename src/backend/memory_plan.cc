#include "backend/memory_plan.h"

#include "backend/cpu/compile.h"
#include "backend/cpu/cpu_device.h"
#include "backend/gpu/dry_run.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/tune/tune.h"

namespace weft::backend {

const char* NameOf(MemoryKind kind) {
    return kind == MemoryKind::kHost ? "cpu" : "vulkan";
}

std::string ProductsOf(const gpu::Description& gpu) {
    return on_gpu::ArithmeticText(on_gpu::ArithmeticOf(gpu, {}));
}

std::string TilesOf(const gpu::Description& gpu) {
    return on_gpu::TunedText(gpu);
}

program::Target TargetOf(const DescribedDevice& device) {
    return device.kind == MemoryKind::kHost ? DescribeCpu(CpuLevelFor(device.reference)).target
                                            : on_gpu::TargetOfGpus();
}

Result<MemoryUse> PlanMemory(const program::ChunkedProgram& program, const CompileOptions& options,
                             const DescribedDevice& device) {
    if (device.kind == MemoryKind::kHost) {
        return PlanCpuMemory(program, options, CpuLevelFor(device.reference), device.threads);
    }
    return on_gpu::PlanMemory(program.program, options, on_gpu::CommonGpu(), {});
}

}  // namespace weft::backend
