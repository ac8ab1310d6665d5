#include "backend/cpu/cpu_device.h"

#include "backend/cpu/compile.h"
#include "backend/cpu/thread_team.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"
#include "kernels/latent.h"

namespace weft::backend {
namespace {

class CpuDevice final : public Device {
  public:
    explicit CpuDevice(const CpuOptions& options)
        : info_(DescribeCpu(options.level)),
          context_{options.level, kernels::KernelsFor(options.level), team_, options.cores},
          team_({options.threads, options.cores, options.cores_shared}) {}

    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return CpuPool(); }
    Result<std::unique_ptr<Executable>> Compile(const program::Program& program,
                                                const CompileOptions& options) override {
        return CompileForCpu(program, options, context_);
    }
    Result<std::unique_ptr<TrainingExecutable>> CompileTraining(
        program::ChunkedProgram program, const TrainingOptions& options) override {
        return CompileTrainingForCpu(std::move(program), options, context_);
    }

  private:
    DeviceInfo info_;
    CpuContext context_;
    ThreadTeam team_;
};

}  // namespace

CpuLevel CpuLevelFor(bool reference) {
    return reference ? CpuLevel::kReference : BestCpuLevel(DetectCpu());
}

DeviceInfo DescribeCpu(CpuLevel level) {
    DeviceInfo info;
    info.name = "cpu";
    info.hardware = DetectCpu().model;
    info.kernels = CpuLevelName(kernels::KernelsFor(level).level);
    for (const CpuLevel built : kCpuLevels) {
        if (kernels::IsBuilt(built)) info.kernels_built.emplace_back(CpuLevelName(built));
    }
    info.identity = "cpu-" + info.kernels;
    info.target.page_tokens = kPageTokens;
    info.target.most_experts = kernels::kMostExperts;
    info.target.most_latent_columns = kernels::kMostLatentColumns;
    info.target.wide_sums = true;
    return info;
}

MemoryPool CpuPool() {
    return {MemoryKind::kHost, TotalMemoryBytes(), AvailableMemoryBytes(), ResidentBytes()};
}

std::shared_ptr<Device> MakeCpuDevice(const CpuOptions& options) {
    return std::make_shared<CpuDevice>(options);
}

}  // namespace weft::backend
