// A device whose memory the host cannot read: the border's proof. `weft_strange` is weft, linked
// with this file and memory.cc in place of backend/device.cc and backend/cpu/memory.cc: its "cpu"
// is this device, and whatever above the border takes a value's bytes for its own ends with a
// segmentation fault. Inside are the CPU's kernels. Pages of the KV cache are larger than the
// CPU's.
#include "backend/device.h"

#include "backend/cpu/cpu_device.h"
#include "memory.h"

namespace weft::backend {
namespace {

using strange::HiddenMemory;

constexpr int64_t kStrangePageTokens = 128;

class StrangeExecutable final : public Executable {
  public:
    // Compiles by `inner`, all of whose memory is then hidden.
    static Result<std::unique_ptr<Executable>> Make(Device& inner, const program::Program& program,
                                                    const CompileOptions& options) {
        auto made = std::make_unique<StrangeExecutable>();
        {
            const HiddenMemory::Collects collects(made->memory_);
            WEFT_ASSIGN(made->inner_, inner.Compile(program, options));
        }
        { const HiddenMemory::Opened hides_at_its_end(made->memory_); }
        return std::unique_ptr<Executable>(std::move(made));
    }

    Status LoadWeight(program::ValueId id, const RowSource& source) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->LoadWeight(id, source);
    }
    Status Run(const Step& step, const Groups& groups) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Run(step, groups);
    }
    Status Read(program::ValueId id, int64_t first, std::span<float> out) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Read(id, first, out);
    }
    Status ReadTop(program::ValueId id, int64_t row, int64_t columns,
                   std::span<Candidate> out) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->ReadTop(id, row, columns, out);
    }
    bool ends_with_exchange() const override { return inner_->ends_with_exchange(); }
    MemoryUse memory() const override { return inner_->memory(); }
    void SetTracing(bool on) override { inner_->SetTracing(on); }
    std::span<const OpTiming> timings() const override { return inner_->timings(); }
    TransferLog& transfers() override { return inner_->transfers(); }
    void SetProbe(Probe probe) override { inner_->SetProbe(std::move(probe)); }
    int64_t progress() const override { return inner_->progress(); }

  private:
    HiddenMemory memory_;
    std::unique_ptr<Executable> inner_;
};

class StrangeTraining final : public TrainingExecutable {
  public:
    static Result<std::unique_ptr<TrainingExecutable>> Make(Device& inner,
                                                            program::ChunkedProgram program,
                                                            const TrainingOptions& options) {
        auto made = std::make_unique<StrangeTraining>();
        {
            const HiddenMemory::Collects collects(made->memory_);
            WEFT_ASSIGN(made->inner_, inner.CompileTraining(std::move(program), options));
        }
        { const HiddenMemory::Opened hides_at_its_end(made->memory_); }
        return std::unique_ptr<TrainingExecutable>(std::move(made));
    }

    const program::Program& program() const override { return inner_->program(); }
    Status Read(program::ValueId id, int64_t first, std::span<std::byte> out) const override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Read(id, first, out);
    }
    Status Write(program::ValueId id, int64_t first, std::span<const std::byte> bytes) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Write(id, first, bytes);
    }
    void ZeroGradients() override {
        const HiddenMemory::Opened opened(memory_);
        inner_->ZeroGradients();
    }
    Status Run(const TrainingStep& step, const Groups& groups) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Run(step, groups);
    }
    Status Update(UpdateStage stage, const UpdateStep& step, const Groups& groups) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Update(stage, step, groups);
    }
    double loss() const override { return inner_->loss(); }
    std::span<const float> logits() const override { return inner_->logits(); }
    double side_loss() const override { return inner_->side_loss(); }
    Result<std::string> FindNonFinite(const TrainingStep& step, const Groups& groups) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->FindNonFinite(step, groups);
    }
    MemoryUse memory() const override { return inner_->memory(); }
    double MeasurePeak() override { return inner_->MeasurePeak(); }
    int64_t progress() const override { return inner_->progress(); }
    double waited_s() const override { return inner_->waited_s(); }
    void TimeOps() override { inner_->TimeOps(); }
    std::span<const std::vector<float>> op_seconds() const override { return inner_->op_seconds(); }

  private:
    mutable HiddenMemory memory_;
    std::unique_ptr<TrainingExecutable> inner_;
};

class StrangeDevice final : public Device {
  public:
    explicit StrangeDevice(std::shared_ptr<Device> inner)
        : inner_(std::move(inner)), info_(inner_->info()) {
        info_.identity = "strange-" + info_.identity;
        info_.target.page_tokens = kStrangePageTokens;
    }
    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return inner_->pool(); }
    Result<std::unique_ptr<Executable>> Compile(const program::Program& program,
                                                const CompileOptions& options) override {
        return StrangeExecutable::Make(*inner_, program, options);
    }
    Result<std::unique_ptr<TrainingExecutable>> CompileTraining(
        program::ChunkedProgram program, const TrainingOptions& options) override {
        return StrangeTraining::Make(*inner_, std::move(program), options);
    }

  private:
    std::shared_ptr<Device> inner_;
    DeviceInfo info_;
};

}  // namespace

Status CheckDeviceName(std::string_view name) {
    if (name == "cpu" || name == kAutoDevice) return {};
    return MakeError(ErrorCode::kUsage, "no device '{}' here; this weft has: cpu", name);
}

Result<std::shared_ptr<Device>> OpenDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    const CpuLevel level = CpuLevelFor(options.reference || options.exact);
    return std::shared_ptr<Device>(std::make_shared<StrangeDevice>(
        MakeCpuDevice({options.threads, options.cores, options.cores_shared, level})));
}

Result<MemoryPool> DescribePool(const std::string& name, uint64_t) {
    WEFT_TRY(CheckDeviceName(name));
    return CpuPool();
}

AutoChoice ChooseAuto(const DeviceOptions&) {
    return {{"cpu"}, ""};
}

Result<DeviceInfo> DescribeDevice(const std::string& name, const DeviceOptions& options) {
    WEFT_TRY(CheckDeviceName(name));
    DeviceInfo info = DescribeCpu(CpuLevelFor(options.reference || options.exact));
    info.target.page_tokens = kStrangePageTokens;
    return info;
}

}  // namespace weft::backend
