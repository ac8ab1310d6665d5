// A device whose memory the host cannot read. `weft_strange` is weft, linked with this file and
// memory.cc in place of backend/device.cc and backend/cpu/memory.cc: its "cpu" is this device, and
// code above backend/ that dereferences a device pointer segfaults. It runs the CPU's kernels.
// Pages of the KV cache are larger than the CPU's.
#include "backend/device.h"

#include "backend/cpu/cpu_device.h"
#include "memory.h"

namespace weft::backend {
namespace {

using strange::HiddenMemory;

constexpr int64_t kStrangePageTokens = 128;

// A snapshot whose memory is hidden, too.
class StrangeSnapshot final : public HostSnapshot {
  public:
    StrangeSnapshot(HiddenMemory& memory, std::unique_ptr<HostSnapshot> inner)
        : memory_(memory), inner_(std::move(inner)) {}
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Read(id, first_byte, out);
    }

  private:
    HiddenMemory& memory_;
    std::unique_ptr<HostSnapshot> inner_;
};

class StrangeExecutable final : public Executable {
  public:
    // Compiles on `inner`, and then hides all of its memory.
    static Result<std::unique_ptr<Executable>> Make(Device& inner, program::ChunkedProgram program,
                                                    const CompileOptions& options) {
        auto made = std::make_unique<StrangeExecutable>();
        {
            const HiddenMemory::Collects collects(made->memory_);
            WEFT_ASSIGN(made->inner_, inner.Compile(std::move(program), options));
        }
        // Threads read experts from the drive between the calls.
        if (!made->inner_->expert_use().empty()) made->memory_.KeepOpen();
        { const HiddenMemory::Opened hides_at_its_end(made->memory_); }
        return std::unique_ptr<Executable>(std::move(made));
    }

    const program::Program& program() const override { return inner_->program(); }
    Status LoadWeight(program::ValueId id, const RowSource& source) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->LoadWeight(id, source);
    }
    Status Run(const program::OpRange& ops, const Step& step,
               const Communicators& groups) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Run(ops, step, groups);
    }
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Read(id, first_byte, out);
    }
    Status Write(program::ValueId id, int64_t first_byte,
                 std::span<const std::byte> bytes) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->Write(id, first_byte, bytes);
    }
    Status ZeroFill(program::Pool pool) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->ZeroFill(pool);
    }
    Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                    std::span<Candidate> out) override {
        const HiddenMemory::Opened opened(memory_);
        return inner_->ReadTopK(id, row, columns, out);
    }
    Result<std::unique_ptr<HostSnapshot>> Snapshot(std::span<const program::ValueId> ids) override {
        WEFT_ASSIGN(auto inner, inner_->Snapshot(ids));
        return std::unique_ptr<HostSnapshot>(
            std::make_unique<StrangeSnapshot>(memory_, std::move(inner)));
    }
    std::span<const float> HostFloats(program::ValueId, int64_t, int64_t) const override {
        return {};
    }
    bool HasParts() const override { return inner_->HasParts(); }
    void ForgetGroups() override { inner_->ForgetGroups(); }
    MemoryUse memory() const override { return inner_->memory(); }
    DriveUse drive_use() const override { return inner_->drive_use(); }
    std::vector<ExpertUse> expert_use() const override { return inner_->expert_use(); }
    void SetExpertUse(std::span<const ExpertUse> uses) override {
        const HiddenMemory::Opened opened(memory_);
        inner_->SetExpertUse(uses);
    }
    void SetTracing(bool on) override { inner_->SetTracing(on); }
    std::span<const OpTiming> timings() const override { return inner_->timings(); }
    TransferLog& transfers() override { return inner_->transfers(); }
    void SetProbe(Probe probe) override { inner_->SetProbe(std::move(probe)); }
    int64_t progress() const override { return inner_->progress(); }

  private:
    HiddenMemory memory_;
    std::unique_ptr<Executable> inner_;
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
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override {
        return StrangeExecutable::Make(*inner_, std::move(program), options);
    }
    ThreadTeam& host_team() override { return inner_->host_team(); }
    double MeasurePeak(DType compute) override { return inner_->MeasurePeak(compute); }

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

Result<MemoryPool> DescribePool(const std::string& name) {
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
