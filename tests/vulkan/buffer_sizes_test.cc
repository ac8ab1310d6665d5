// Buffers whose size depends on the model: each is planned before weights are read, and compared
// with the driver's largest allocation. A step that starts ends without an error of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backend/gpu/executable.h"
#include "support/architecture_case.h"
#include "support/lavapipe.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/pass_run.h"
#include "support/shared_objects.h"

namespace weft::backend::on_gpu {
namespace {

// A device whose driver allows buffers of a certain size.
class LimitedGpu final : public gpu::Device {
  public:
    LimitedGpu(std::shared_ptr<gpu::Device> real, uint64_t most)
        : real_(std::move(real)), most_(std::min(most, real_->most_buffer_bytes())) {}
    const gpu::Description& description() const override { return real_->description(); }
    std::vector<gpu::Heap> heaps() const override { return real_->heaps(); }
    Result<gpu::Buffer> Allocate(uint64_t bytes, gpu::Place place) override {
        allocated.push_back(bytes);
        if (bytes <= most_ || IsFixed(bytes)) return real_->Allocate(bytes, place);
        return MakeError(ErrorCode::kOutOfMemory, "no memory for {} bytes", bytes);
    }
    uint64_t most_buffer_bytes() const override { return most_; }
    const gpu::Buffer& stop_word() const override { return real_->stop_word(); }
    Result<std::unique_ptr<gpu::Kernel>> MakeKernel(const gpu::KernelCode& code) override {
        return real_->MakeKernel(code);
    }
    Result<std::unique_ptr<gpu::Commands>> Record() override { return real_->Record(); }
    Result<uint64_t> Submit(const gpu::Commands& commands) override {
        return real_->Submit(commands);
    }
    Status Wait(uint64_t submission, Deadline deadline) override {
        return real_->Wait(submission, deadline);
    }
    std::vector<int64_t> Times(const gpu::Commands& commands, uint32_t count) override {
        return real_->Times(commands, count);
    }
    Status status() const override { return real_->status(); }

    // The sizes of buffers that do not depend on the model, which every driver allows: of the
    // uploader and of Read(), and blocks of constants.
    static bool IsFixed(uint64_t bytes) {
        return bytes == Buffers::kReadBytes || bytes == kConstantBlockBytes;
    }
    std::vector<uint64_t> allocated;

  private:
    const std::shared_ptr<gpu::Device> real_;
    const uint64_t most_;
};

class LimitedDevice final : public backend::Device {
  public:
    explicit LimitedDevice(uint64_t most, const Arithmetic& arithmetic = {})
        : gpu_(std::make_shared<LimitedGpu>(Opened(), most)),
          context_(std::make_shared<Context>(gpu_, "vulkan:0", false, arithmetic)) {
        info_.name = "vulkan:0";
        info_.target = TargetOfGpus();
    }
    static std::shared_ptr<gpu::Device> Opened() {
        return weft::test::kSharedObjects->Get("device of limits",
                                               [] { return weft::test::OpenLavapipe().value(); });
    }
    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return {}; }
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override {
        auto executable = std::make_unique<GpuExecutable>(std::move(program), options, context_);
        WEFT_TRY(executable->Prepare({}));
        for (const PlannedBuffer& buffer : executable->Planned()) {
            planned[buffer.bytes] = buffer.what;
        }
        return std::unique_ptr<Executable>(std::move(executable));
    }
    double MeasurePeak(DType) override { return 0; }
    const std::vector<uint64_t>& allocated() const { return gpu_->allocated; }
    std::map<uint64_t, std::string> planned;

  private:
    const std::shared_ptr<LimitedGpu> gpu_;
    const std::shared_ptr<Context> context_;
    DeviceInfo info_;
};

// compile: compiles on the device. run: compiles, runs steps of all kinds, and returns what went
// wrong.
struct Use {
    std::function<Status(Device&)> compile;
    std::function<Status(std::shared_ptr<LimitedDevice>)> run;
};

void ExpectPlanned(const Use& use, const Arithmetic& arithmetic = {}) {
    const auto all = std::make_shared<LimitedDevice>(~uint64_t{0}, arithmetic);
    const Status ran = use.run(all);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    for (const uint64_t bytes : all->allocated()) {
        EXPECT_TRUE(all->planned.contains(bytes) || LimitedGpu::IsFixed(bytes))
            << "a buffer of " << bytes << " bytes is not planned";
    }
    const auto& [most, what] = *all->planned.rbegin();
    const Status again = use.run(std::make_shared<LimitedDevice>(most, arithmetic));
    EXPECT_TRUE(again.ok()) << again.error().message;
    LimitedDevice less(most - 1, arithmetic);
    const Status refused = use.compile(less);
    ASSERT_FALSE(refused.ok()) << what;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported) << refused.error().message;
    EXPECT_NE(refused.error().message.find(what), std::string::npos) << refused.error().message;
}

// ---- Inference ----------------------------------------------------------------------------------

CompileOptions OptionsOf(const program::Program& program) {
    CompileOptions options;
    options.max_tokens = options.max_outputs = 64;
    options.kv_pages = 8;
    if (program::SlotBytes(program) > 0) options.state_slots = 4;
    program::ValueId kept = program.Find("logits");
    if (kept == program::kNoValue) kept = program.Find("hidden");  // of an encoder
    options.keep = {kept};
    return options;
}

Status CompileOn(Device& device, const program::ChunkedProgram& program,
                 const CompileOptions& options) {
    const auto compiled = device.Compile(program, options);
    return compiled.ok() ? Status() : Status(compiled.error());
}

class VulkanBufferSizes : public testing::TestWithParam<model::Family> {};

INSTANTIATE_TEST_SUITE_P(Families, VulkanBufferSizes, testing::ValuesIn(model::Families()),
                         [](const auto& one) {
                             std::string name(one.param.architecture);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

TEST_P(VulkanBufferSizes, OfStepsArePlanned) {
    constexpr std::string_view kDaily[] = {"llama", "qwen3moe", "mamba2", "bert"};
    SKIP_TO_NIGHT_UNLESS(std::ranges::count(kDaily, GetParam().architecture) > 0);
    WEFT_LAVAPIPE_OR_SKIP(device);
    const std::string list(GetParam().tested);
    const support::ArchitectureCase c(list.substr(0, list.find(',')));
    ASSERT_NE(c.source, nullptr);
    const model::Hyper hyper = model::ReadHyper(*c.source).value();
    model::BuildOptions build;
    build.context = 64;
    build.target = TargetOfGpus();
    if (hyper.encoder) build.outputs = model::Outputs::kHidden;
    const program::Program program = support::Build(hyper, *c.source, {}, build)[0];
    const auto compile = [&](Device& on) { return CompileOn(on, {program}, OptionsOf(program)); };
    const auto run = [&](std::shared_ptr<LimitedDevice> on) -> Status {
        support::LoadedRank rank(std::move(on), program, *c.source);
        if (hyper.token_types > 1) rank.set_second(c.second);
        rank.Logits(c.tokens, 64);
        for (const size_t piece : {7, 1}) {
            if (!hyper.encoder) rank.Logits(c.tokens, piece);
        }
        return {};
    };
    ExpectPlanned({compile, run});
}

// ---- Training -----------------------------------------------------------------------------------

struct SizesCase {
    support::TrainingCase training;
    Arithmetic arithmetic{};
    bool daily = false;
};

std::vector<SizesCase> TrainingCases() {
    using program::Recompute;
    return {
        {{.zero = {.stage = 3, .prefetch_elements = 900}, .beside = true}, {}, true},
        {{.architecture = "qwen2", .tied = true, .gradients = DType::kF32, .zero = {.stage = 2}}},
        {{.dtype = DType::kBF16, .gradients = DType::kBF16, .recompute = Recompute::kFull}},
        {{.architecture = "qwen3moe", .experts = true, .optimizer = "muon"}},
        {{.optimizer = "adafactor"}},
        {{.optimizer = "adam8bit"}},
        {{.weights = DType::kQ8_0, .dtype = DType::kBF16, .lora = true}},
        {{.weights = DType::kQ8_0, .dtype = DType::kBF16, .lora = true},
         {.decoded_bytes = 1},
         true},
        {{.architecture = "qwen3moe", .experts = true, .weights = DType::kQ8_0, .lora = true},
         {.decoded_bytes = 1}},
    };
}

// All passes of steps of many rows and of few; all weights are zero.
Status RunPasses(Device& device, const program::ChunkedProgram& program,
                 const CompileOptions& options) {
    WEFT_ASSIGN(const auto executable, device.Compile(program, options));
    for (const program::Pool pool : {program::Pool::kWeight, program::Pool::kGradient}) {
        WEFT_TRY(executable->ZeroFill(pool));
    }
    const program::ModelChunk& chunk = program.chunks[0];
    for (const int32_t rows : {40, 21, 1}) {
        const support::Micro micro(1, rows);
        WEFT_TRY(executable->Run(chunk.forward(), micro.Step(0, false), {}));
        WEFT_TRY(executable->Run(chunk.backward(), micro.Step(0, true), {}));
        WEFT_TRY(executable->Run({chunk.begin, chunk.predict_begin}, micro.Step(0, false), {}));
        Step step;
        step.again = true;
        step.number = 1;
        step.rate = 0.01;
        WEFT_TRY(executable->Run(program.update.sum(), step, {}));
        WEFT_TRY(executable->Run(program.update.apply(), step, {}));
    }
    return {};
}

TEST(VulkanTrainingSizes, OfPassesArePlanned) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    for (SizesCase& c : TrainingCases()) {
        if (!c.daily && !weft::test::Nightly()) continue;
        SCOPED_TRACE(c.training.Name());
        c.training.target = TargetOfGpus();
        c.training.head_dim = 8;
        support::TrainingRank rank(c.training);
        const auto compile = [&](Device& on) {
            return CompileOn(on, rank.program(), c.training.compile());
        };
        const auto run = [&](const std::shared_ptr<LimitedDevice>& on) -> Status {
            return RunPasses(*on, rank.program(), c.training.compile());
        };
        ExpectPlanned({compile, run}, c.arithmetic);
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
