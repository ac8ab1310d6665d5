#include "backend/cpu/cpu_device.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/compile.h"
#include "backend/thread_team.h"
#include "base/deadline.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"
#include "kernels/latent.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;

// The measured product has 280 x 448 x 512 elements: whole tiles of every instruction set, and 1.9
// MB of float32 in all.
constexpr int64_t kRows = 280, kCols = 448, kDepth = 512;
constexpr int64_t kMeasureNs = 20'000'000;

// Peak FLOP/s of one thread: the rate of the fastest product that ends within the time.
double PeakOfThread(const kernels::Kernels& kernels, dense::Compute compute) {
    const std::vector<float> a(kRows * kDepth, 1.0f), b(kCols * kDepth, 1.0f);
    std::vector<float> c(kRows * kCols);
    dense::GemmArgs args;
    args.a = {a.data(), kDepth, 1};
    args.b = {b.data(), kCols, 1};
    args.c = {c.data(), kCols};
    args.m = kRows, args.n = kCols, args.k = kDepth;
    args.compute = compute;
    std::vector<std::byte> scratch(static_cast<size_t>(kernels.gemm_scratch_bytes(args)));
    const int64_t begin_ns = NowNs();
    int64_t best_ns = INT64_MAX, now_ns = begin_ns;
    // (The first round touches the pages.)
    for (int round = 0; round < 3 || now_ns - begin_ns < kMeasureNs; ++round) {
        const int64_t from_ns = now_ns;
        kernels.gemm(args, scratch, 0, 1);
        now_ns = NowNs();
        best_ns = std::min(best_ns, now_ns - from_ns);
    }
    return 2e9 * static_cast<double>(kRows * kCols * kDepth) / static_cast<double>(best_ns);
}

class CpuDevice final : public Device {
  public:
    explicit CpuDevice(const CpuOptions& options)
        : info_(DescribeCpu(options.level)),
          context_{kernels::KernelsFor(options.level), team_, options.cores},
          team_({options.threads, options.cores, options.cores_shared}) {}

    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return CpuPool(); }
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override {
        return CompileForCpu(std::move(program), options, context_);
    }
    ThreadTeam& host_team() override { return team_; }
    double MeasurePeak(DType compute) override;

  private:
    DeviceInfo info_;
    CpuContext context_;
    ThreadTeam team_;
};

double CpuDevice::MeasurePeak(DType compute) {
    const auto as = compute == DType::kBF16 ? dense::Compute::kBf16 : dense::Compute::kF32;
    std::vector<double> peaks(static_cast<size_t>(team_.size()));
    team_.Run(
        [&](int part) { peaks[static_cast<size_t>(part)] = PeakOfThread(context_.kernels, as); });
    return std::accumulate(peaks.begin(), peaks.end(), 0.0);
}

}  // namespace

CpuLevel CpuLevelFor(bool reference) {
    if (reference) return CpuLevel::kReference;
    std::vector<CpuLevel> levels = UsableCpuLevels(DetectCpu());
    while (!kernels::IsBuilt(levels.back())) levels.pop_back();
    return levels.back();
}

DeviceInfo DescribeCpu(CpuLevel level) {
    DeviceInfo info;
    info.name = "cpu";
    info.hardware = DetectCpu().model;
    const CpuLevel used = kernels::KernelsFor(level).level;
    info.kernels = CpuLevelName(used);
    for (const CpuLevel built : kCpuLevels) {
        if (kernels::IsBuilt(built)) info.kernels_built.emplace_back(CpuLevelName(built));
    }
    // AVX-VNNI kernels give the same bits as AVX2 kernels.
    const CpuLevel same_bits = used == CpuLevel::kAvxVnni ? CpuLevel::kAvx2 : used;
    info.identity = std::string("cpu-") + CpuLevelName(same_bits);
    info.target.page_tokens = kPageTokens;
    info.target.most_experts = kernels::kMostExperts;
    info.target.most_latent_columns = kernels::kMostLatentColumns;
    info.target.float64_reductions = true;
    return info;
}

MemoryPool CpuPool() {
    return {MemoryKind::kHost, TotalMemoryBytes(), AvailableMemoryBytes(), ResidentBytes()};
}

std::shared_ptr<Device> MakeCpuDevice(const CpuOptions& options) {
    return std::make_shared<CpuDevice>(options);
}

}  // namespace weft::backend
