// Sums in the middle of submissions: the host signal alone, and in steps of tensor ranks.
#include "backend/gpu/device/host_signal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/compile.h"
#include "backend/gpu/device/context.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/memory/upload.h"
#include "backend/gpu/record/backoff.h"
#include "backend/placed/placed_device.h"
#include "coll/comm.h"
#include "net/local.h"
#include "shaders/shaders.h"
#include "support/lavapipe.h"
#include "support/limits.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/tiny_model.h"
#include "support/wait.h"
#include "vulkan/golden_program.h"

namespace weft::backend::on_gpu {
namespace {

using support::LoadedRank;
using support::OneGroup;

// Polls are slow on a busy machine, and these tests check results, not times. A GPU's driver,
// however, ends work that takes seconds.
const double kPatient = std::getenv("WEFT_TEST_GPU") != nullptr ? 1 : 1e3;
constexpr double kImpatient = 0.02;

// The gate of a device. On a busy machine, a gate with a short wait may miss its exchange: the next
// one waits longer.
std::unique_ptr<HostSignal> MakeSignal(gpu::Device& device, KernelCache& kernels,
                                       double patience = kPatient) {
    std::unique_ptr<HostSignal> signal = HostSignal::Make(device, kernels, patience).value();
    for (int i = 0; i < 30 && !signal->works(); ++i) {
        patience = std::min(1.25 * patience, kPatient);
        signal = HostSignal::Make(device, kernels, patience).value();
    }
    return signal;
}

// A buffer of the device as floats, and kernels that work on one value at a time.
struct FloatBuffer {
    FloatBuffer(gpu::Device& device, uint64_t count)
        : buffer(device.Allocate(4 * count, gpu::Place::kHost).value()) {}
    float* data() const { return reinterpret_cast<float*>(buffer.host()); }
    gpu::Buffer buffer;
};

TEST(VulkanGate, TrialMeasuresAnExchange) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    KernelCache kernels(*device);
    const auto signal = MakeSignal(*device, kernels);
    ASSERT_TRUE(signal->works()) << signal->why();
    EXPECT_GT(signal->exchange_us(), 0);
    std::printf("an exchange of 2 KiB: %.1f us\n", signal->exchange_us());
}

// y = 2 x + ..., with exchanges of different sizes; memory beyond the floats stays unchanged.
TEST(VulkanGate, ExchangesOfAnySizeMoveOnlyTheirFloats) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    KernelCache kernels(*device);
    const auto signal = MakeSignal(*device, kernels);
    ASSERT_TRUE(signal->works()) << signal->why();
    const std::vector<uint32_t> counts = {1, 7, 255, 256, 257, 4096, 16384};
    constexpr uint64_t kMost = 16400;
    FloatBuffer x(*device, kMost), to(*device, kMost), y(*device, kMost);
    std::vector<float> from(kMost);
    for (uint64_t i = 0; i < kMost; ++i) {
        x.data()[i] = static_cast<float>(i);
        to.data()[i] = y.data()[i] = -1;
    }
    const auto commands = device->Record().value();
    signal->RecordBegin(*commands);
    for (uint32_t i = 0; i < counts.size(); ++i) {
        signal->Record(*commands, {x.buffer.address(), to.buffer.address(), y.buffer.address(),
                                   counts[i], i + 1});
    }
    ASSERT_TRUE(commands->End().ok());
    for (int round = 0; round < 3; ++round) {
        signal->Begin(static_cast<uint32_t>(counts.size()));
        const uint64_t number = device->Submit(*commands).value();
        for (uint32_t i = 0; i < counts.size(); ++i) {
            const auto came = signal->Await(i + 1, number, Deadline::In(60'000));
            ASSERT_TRUE(came.ok() && *came) << i;
            EXPECT_EQ(to.data()[counts[i]], -1) << counts[i];
            for (uint32_t j = 0; j < counts[i]; ++j) {
                ASSERT_EQ(to.data()[j], static_cast<float>(j));
                from[j] = 2 * to.data()[j] + static_cast<float>(round);
            }
            signal->Open(i + 1, std::as_bytes(std::span(from).first(counts[i])));
        }
        ASSERT_TRUE(device->Wait(number, Deadline::In(60'000)).ok());
        EXPECT_EQ(signal->GaveUp(), 0U);
        for (uint32_t j = 0; j < counts.back(); ++j) {
            ASSERT_EQ(y.data()[j], static_cast<float>(2 * j) + static_cast<float>(round));
        }
        EXPECT_EQ(y.data()[counts.back()], -1);
        std::fill_n(to.data(), kMost, -1.0F);
    }
}

// Uploads, such as those of streamed weights, continue while a submission runs: each waits only for
// its own earlier copies.
TEST(VulkanGate, UploadsGoOnWhileASubmissionWaits) {
    constexpr double kSeconds = 30;  // of the submission, if an upload waits for it
    WEFT_LAVAPIPE_OR_SKIP(device);
    Context context(device, "vulkan", false);
    context.limits.maps_memory = false;  // as on a card
    const auto signal = MakeSignal(*device, context.kernels, kSeconds);
    ASSERT_TRUE(signal->works()) << signal->why();
    FloatBuffer x(*device, 16);
    const gpu::Buffer to = device->Allocate(4096, gpu::Place::kDevice).value();
    Uploader uploader(context);
    const auto put = [&] {
        const Uploader::Range range{&to, 0, to.size_bytes()};
        const auto fill = [](std::span<std::byte* const> out) { *out[0] = std::byte{1}; };
        ASSERT_TRUE(uploader.Put({&range, 1}, fill).ok());
    };
    for (int i = 0; i < 4; ++i) put();
    const auto commands = device->Record().value();
    signal->RecordBegin(*commands);
    const uint64_t at = x.buffer.address();
    signal->Record(*commands, {at, at, at, 16, 1});
    ASSERT_TRUE(commands->End().ok());
    signal->Begin(1);
    const uint64_t number = device->Submit(*commands).value();
    ASSERT_TRUE(signal->Await(1, number, Deadline::In(60'000)).value());
    for (int i = 0; i < 4; ++i) put();
    signal->Open(1, std::as_bytes(std::span(x.data(), 16)));
    ASSERT_TRUE(device->Wait(number, Deadline::In(60'000)).ok());
    EXPECT_EQ(signal->GaveUp(), 0U);
    EXPECT_TRUE(uploader.Finish().ok());
}

// A sum of three ranks whose addends lie in windows (PeerSums): of rank 1 here, in the second half.
TEST(VulkanGate, ASumThroughWindowsIsInRankOrder) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    KernelCache kernels(*device);
    const auto signal = MakeSignal(*device, kernels);
    ASSERT_TRUE(signal->works()) << signal->why();
    constexpr uint32_t kRanks = 3, kSecond = 1, kCount = 300;
    FloatBuffer x(*device, kCount), y(*device, kCount + 1), windows(*device, 2 * kRanks * kCount);
    FloatBuffer table(*device, 2 * 2 * kRanks);
    const auto window = [](uint32_t rank, uint32_t half) { return (2 * rank + half) * kCount; };
    for (uint32_t i = 0; i < 2 * kRanks; ++i) {
        reinterpret_cast<uint64_t*>(table.data())[i] =
            windows.buffer.address() + sizeof(float) * window(i % kRanks, i / kRanks);
    }
    std::fill_n(windows.data(), 2 * kRanks * kCount, 5.0F);
    std::fill_n(windows.data() + window(0, kSecond), kCount, 1e8F);
    std::fill_n(windows.data() + window(2, kSecond), kCount, -1e8F);
    std::fill_n(x.data(), kCount, 3.0F);
    std::fill_n(y.data(), kCount + 1, -1.0F);
    const auto commands = device->Record().value();
    signal->RecordBegin(*commands);
    signal->Record(*commands, {x.buffer.address(),
                               windows.buffer.address() + sizeof(float) * window(1, kSecond),
                               y.buffer.address(), kCount, 1 | kRanks << 16 | kSecond << 24});
    ASSERT_TRUE(commands->End().ok());
    signal->Begin(1, table.buffer.address());
    const uint64_t number = device->Submit(*commands).value();
    ASSERT_TRUE(signal->Await(1, number, Deadline::In(60'000)).value());
    EXPECT_EQ(windows.data()[window(1, kSecond) + kCount - 1], 3);
    EXPECT_EQ(windows.data()[window(1, 0)], 5);
    signal->Open(1, {});
    ASSERT_TRUE(device->Wait(number, Deadline::In(60'000)).ok());
    EXPECT_EQ(signal->GaveUp(), 0U);
    // (1e8 + 3) - 1e8: the first sum is rounded.
    for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(y.data()[i], 0) << i;
    EXPECT_EQ(y.data()[kCount], -1);
}

// Kernels after an exchange that nobody answers do nothing, and the submission ends.
TEST(VulkanGate, SubmissionEndsIfTheHostDoesNotAnswer) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    KernelCache kernels(*device);
    const auto signal = MakeSignal(*device, kernels, kImpatient);
    ASSERT_TRUE(signal->works()) << signal->why();
    FloatBuffer x(*device, 64), host(*device, 128), y(*device, 64);
    std::fill_n(x.data(), 64, 3.0F);
    std::fill_n(y.data(), 64, -1.0F);
    struct MapArgs {
        uint64_t a, b, c, y, z;
        uint32_t count, cols;
        float factor;
        uint32_t length, offset;
        float xielu[4], unused;
    } const args{
        x.buffer.address(), x.buffer.address(), 0, y.buffer.address(), 0, 64, 64, 1, 1, 0, {}, 0};
    const gpu::Kernel* add = kernels.Get("map", {64, 0}, sizeof args, 0, Guard::kStopWord).value();
    const auto commands = device->Record().value();
    const HostSignal::Exchange exchange{x.buffer.address(), host.buffer.address(),
                                        x.buffer.address(), 64, 1};
    signal->RecordBegin(*commands);
    signal->Record(*commands, exchange);
    commands->Run(*add, std::as_bytes(std::span(&args, 1)), 1);
    signal->Record(*commands, {exchange.x, exchange.to_host, exchange.y, 64, 2});
    ASSERT_TRUE(commands->End().ok());
    signal->Begin(2);
    const int64_t begin_ns = NowNs();
    const uint64_t number = device->Submit(*commands).value();
    EXPECT_TRUE(signal->Await(1, number, Deadline::In(60'000)).value());
    EXPECT_FALSE(signal->Await(2, number, Deadline::In(60'000)).value());
    ASSERT_TRUE(device->Wait(number, Deadline::In(60'000)).ok());
    std::printf("given up after %.0f ms\n", 1e3 * SecondsSince(begin_ns));
    EXPECT_EQ(signal->GaveUp(), 1U);
    EXPECT_EQ(y.data()[0], -1);
    EXPECT_EQ(x.data()[0], 3);
    // Opening the gate after its submission has given up does not open it for the next submission.
    signal->Open(1, std::as_bytes(std::span(x.data(), 64)));
    signal->Begin(2);
    const uint64_t next = device->Submit(*commands).value();
    EXPECT_TRUE(signal->Await(1, next, Deadline::In(60'000)).value());
    EXPECT_FALSE(signal->Await(2, next, Deadline::In(60'000)).value());
    EXPECT_EQ(signal->GaveUp(), 1U);
    EXPECT_EQ(y.data()[0], -1);
}

// The ids of a shader's specialization constants: OpDecorate (71) x SpecId (1) id.
std::vector<uint32_t> SpecIds(std::span<const uint32_t> words) {
    std::vector<uint32_t> ids;
    for (size_t at = 5; at < words.size(); at += std::max(words[at] >> 16, 1U)) {
        const bool decorates = (words[at] & 0xffff) == 71 && at + 3 < words.size();
        if (decorates && words[at + 2] == 1) ids.push_back(words[at + 3]);
    }
    return ids;
}

constexpr uint32_t kGuardConstant = 30;

// The number of constants that a lowering sets: 0, 1, ...
size_t ConstantsOf(std::span<const uint32_t> words) {
    size_t count = 0;
    for (const uint32_t id : SpecIds(words)) {
        if (id < kGuardConstant) count = std::max<size_t>(count, id + 1);
    }
    return count;
}

// Pauses of 100 steps, 200, ... up to 100,000, and of 100 again after a completed exchange.
TEST(VulkanBackoff, RepeatedFailuresAreRetriedLessOften) {
    on_gpu::Backoff backoff;
    EXPECT_FALSE(backoff.waits());
    const auto steps = [&] {
        int count = 0;
        for (; backoff.waits(); ++count) backoff.CountStep();
        return count;
    };
    for (const int want : {100, 200, 400, 800}) {
        EXPECT_EQ(backoff.GiveUp(), want);
        EXPECT_EQ(steps(), want);
    }
    for (int i = 0; i < 100; ++i) EXPECT_LE(backoff.GiveUp(), 100'000);
    EXPECT_EQ(steps(), 100'000);
    backoff.CountStep();
    EXPECT_FALSE(backoff.waits());
    backoff.NoteExchanged();
    EXPECT_EQ(backoff.GiveUp(), 100);
}

TEST(VulkanGate, EveryShaderHasTheGuard) {
    for (const std::string_view name : shaders::Names()) {
        const std::vector<uint32_t> ids = SpecIds(shaders::Find(name));
        EXPECT_EQ(std::ranges::count(ids, kGuardConstant), 1) << name;
    }
}

// ---- Steps --------------------------------------------------------------------------------------

// A GPU whose host polls late and so detects a submission only after its end.
class LateGpu final : public gpu::Device {
  public:
    explicit LateGpu(std::shared_ptr<gpu::Device> gpu) : gpu_(std::move(gpu)) {}
    const gpu::Description& description() const override { return gpu_->description(); }
    std::vector<gpu::Heap> heaps() const override { return gpu_->heaps(); }
    Result<gpu::Buffer> Allocate(uint64_t bytes, gpu::Place place) override {
        return gpu_->Allocate(bytes, place);
    }
    uint64_t most_buffer_bytes() const override { return gpu_->most_buffer_bytes(); }
    Result<std::unique_ptr<gpu::Kernel>> MakeKernel(const gpu::KernelCode& code) override {
        EXPECT_GE(code.constants.size(), ConstantsOf(code.spirv)) << code.name;
        return gpu_->MakeKernel(code);
    }
    Result<std::unique_ptr<gpu::Commands>> Record() override { return gpu_->Record(); }
    Result<uint64_t> Submit(const gpu::Commands& commands) override {
        WEFT_ASSIGN(const uint64_t number, gpu_->Submit(commands));
        if (looks_late) WEFT_TRY(gpu_->Wait(number, Deadline::In(60'000)));
        return number;
    }
    Status Wait(uint64_t submission, Deadline deadline) override {
        return gpu_->Wait(submission, deadline);
    }
    std::vector<int64_t> Times(const gpu::Commands& commands, uint32_t count) override {
        return gpu_->Times(commands, count);
    }
    Status status() const override { return gpu_->status(); }
    const gpu::Buffer& stop_word() const override { return gpu_->stop_word(); }

    bool looks_late = false;

  private:
    std::shared_ptr<gpu::Device> gpu_;
};

// A device whose gate a test can read.
class Watched final : public Device {
  public:
    Watched(DeviceSum sum, double patience, const Arithmetic& arithmetic)
        : sum_(sum),
          gpu_(std::make_shared<LateGpu>(weft::test::OpenLavapipe().value())),
          context_(std::make_shared<Context>(gpu_, "vulkan:0", false, arithmetic)) {
        info_.submits = true;
        if (sum == DeviceSum::kSpin) {
            context_->signal = MakeSignal(*context_->gpu, context_->kernels, patience);
        }
    }
    const DeviceInfo& info() const override { return info_; }
    MemoryPool pool() const override { return {}; }
    Result<std::unique_ptr<Executable>> Compile(program::ChunkedProgram program,
                                                const CompileOptions& options) override {
        CompileOptions own = options;
        own.device_sum = sum_;
        return CompileForVulkan(std::move(program), own, context_, {});
    }
    double MeasurePeak(DType) override { return 0; }
    const HostSignal* signal() const { return context_->signal.get(); }
    void LookLate(bool late) { gpu_->looks_late = late; }

  private:
    DeviceSum sum_;
    DeviceInfo info_;
    std::shared_ptr<LateGpu> gpu_;
    std::shared_ptr<Context> context_;
};

struct RanksRun {
    std::vector<std::vector<float>> logits;
    std::vector<int64_t> exchanges;
    int64_t sums = 0;  // sums in a step
    int64_t steps = 0;
};

// Programs for two tensor ranks.
struct Model {
    const model_files::ModelSource& source;
    int64_t vocab = 0;
    std::vector<program::Program> programs;
    Arithmetic arithmetic{};
    int64_t tokens = 24;
};

// A delay of one rank.
struct Trouble {
    int late = -1;        // rank 1 sleeps before it runs this piece
    int looks_late = -1;  // rank 0 polls the device only after the device has given up this piece
    bool any() const { return late >= 0 || looks_late >= 0; }
};

RanksRun RunRanks(const Model& model, DeviceSum sum, size_t piece, const Trouble& trouble = {}) {
    const std::vector<program::Program>& programs = model.programs;
    std::vector<int32_t> tokens(static_cast<size_t>(model.tokens));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 31 + 7) % 48);
    RanksRun run{std::vector<std::vector<float>>(2), std::vector<int64_t>(2)};
    run.sums = std::ranges::count_if(programs[0].ops, [](const program::Op& op) {
        return op.kind() == program::OpKind::kAllReduce;
    });
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    const int64_t deadline_ms = weft::test::TimeoutMs(60'000);  // kernels are compiled meanwhile
    weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, deadline_ms).value();
        const auto r = static_cast<size_t>(fabric.rank);
        const auto device =
            std::make_shared<Watched>(sum, trouble.any() ? kImpatient : kPatient, model.arithmetic);
        LoadedRank rank(device, programs[r], model.source);
        int number = 0;
        for (size_t at = 0; at < tokens.size(); at += piece, ++number) {
            device->LookLate(r == 0 && number == trouble.looks_late);
            if (r == 1 && number == trouble.late) {
                weft::test::Outlast(static_cast<int64_t>(100'000 * kImpatient));
            }
            const auto part = std::span(tokens).subspan(at, std::min(piece, tokens.size() - at));
            const Status status = rank.Run(part, static_cast<int64_t>(at), OneGroup(*comm).groups);
            ASSERT_TRUE(status.ok()) << status.error().message;
            const program::ValueId logits = programs[r].Find("logits");
            std::vector<float> out(part.size() * static_cast<size_t>(model.vocab));
            if (r == 0) ++run.steps;
            ASSERT_TRUE(rank.executable().ReadFloats(logits, 0, out).ok());
            run.logits[r].insert(run.logits[r].end(), out.begin(), out.end());
        }
        if (device->signal() != nullptr) run.exchanges[r] = device->signal()->exchanges();
    });
    return run;
}

RanksRun RunRanks(DeviceSum sum, size_t piece, const Trouble& trouble = {}) {
    const model::Hyper hyper = support::TinyHyper("qwen3", false);
    const support::TinySource source(hyper);
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    options.target.float64_reductions = false;
    model::Layout layout;
    layout.tp = 2;
    return RunRanks({source, hyper.vocab, support::Build(hyper, source, layout, options)}, sum,
                    piece, trouble);
}

// On a busy machine, one rank may stop waiting for the other's sums: the bits are the same, but not
// all sums are exchanged. At least one of several attempts is undisturbed.
void ExpectTheBitsOfSplit(const auto& run, size_t piece) {
    const RanksRun split = run(DeviceSum::kSplit, piece);
    EXPECT_EQ(split.exchanges[0], 0);
    const int64_t all = split.steps * split.sums;
    int64_t least = 0;
    const int most_tries = std::getenv("WEFT_TEST_GPU") != nullptr ? 1 : 10;
    for (int tries = 0; tries < most_tries && least < all; ++tries) {
        const RanksRun spin = run(DeviceSum::kSpin, piece);
        ASSERT_EQ(spin.logits[0], split.logits[0]) << piece;
        ASSERT_EQ(spin.logits[0], spin.logits[1]) << piece;
        least = std::min(spin.exchanges[0], spin.exchanges[1]);
    }
    // Both ranks share one GPU, as in a machine with one card, which may run one rank's submissions
    // at a time.
    if (std::getenv("WEFT_TEST_GPU") != nullptr) return;
    EXPECT_EQ(least, all) << piece;
}

#define WEFT_NEEDS_LAVAPIPE() WEFT_LAVAPIPE_OR_SKIP(needed)

TEST(VulkanGate, StepsHaveTheBitsOfSeparateSubmissions) {
    SKIP_TO_NIGHT_UNLESS(false);  // the next test compares daily
    WEFT_NEEDS_LAVAPIPE();
    const auto run = [](DeviceSum sum, size_t piece) { return RunRanks(sum, piece); };
    ExpectTheBitsOfSplit(run, 1);
    ExpectTheBitsOfSplit(run, 8);
}

// Ops that the kernel of a sum continues with: a norm, a factor, a bias, and encoding rows as int8.
TEST(VulkanGate, OpsAfterASumHaveTheBitsOfSeparateSubmissions) {
    WEFT_LAVAPIPE_OR_SKIP(device);
    const std::pair<GoldenName, bool> cases[] = {
        {{"gptOss", true}, false}, {{"olmo2"}, true},  // the others in the nightly suite
        {{"gemma3"}, false},       {{"granite"}, false},
        {{"llama"}, true},         {{"mixtral", true}, true},
    };
    const size_t count = weft::test::Nightly() ? std::size(cases) : 1;
    for (const auto& [name, integers] : std::span(cases).first(count)) {
        SCOPED_TRACE(fmt::format("{}{}", name.name, integers ? " in int8" : ""));
        if (integers && !device->description().integer_dot) continue;
        const GoldenProgram golden(name, integers);
        const Model model{*golden.source, golden.hyper.vocab, golden.Build(DType::kF16, 2),
                          Arithmetic{.integer = integers}, 6};
        ExpectTheBitsOfSplit(
            [&](DeviceSum sum, size_t piece) { return RunRanks(model, sum, piece); }, 1);
    }
}

TEST(VulkanGate, LongStepsDoNotWaitInTheMiddle) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_NEEDS_LAVAPIPE();
    EXPECT_EQ(RunRanks(DeviceSum::kSpin, 24).exchanges[0], 0);
}

// Rank 0 cancels its first sum of that step, continues alone, and has the same bits.
TEST(VulkanGate, LateRankChangesNoBits) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_NEEDS_LAVAPIPE();
    const RanksRun split = RunRanks(DeviceSum::kSplit, 1);
    const RanksRun spin = RunRanks(DeviceSum::kSpin, 1, {.late = 3});
    EXPECT_EQ(spin.logits[0], split.logits[0]);
    EXPECT_EQ(spin.logits[1], split.logits[0]);
    EXPECT_LE(spin.exchanges[0], 3 * spin.sums + 1);
}

struct PlacedRun {
    std::vector<float> logits;
    int64_t exchanges = 0, steps = 0, runs = 0;  // runs: of the host, in a step
};

// A rank whose experts the processor computes, token by token.
PlacedRun RunPlaced(const Model& model, DeviceSum sum, int late_piece = -1) {
    const program::HostOps experts{program::HostOps::kAllLayers, 0};
    const program::Program& program = model.programs[0];
    PlacedRun run;
    run.runs = static_cast<int64_t>(
        program::PlaceOps(program, program::ChooseHostOps(program, experts), {})->runs.size());
    const auto gpu =
        std::make_shared<Watched>(sum, late_piece < 0 ? kPatient : kImpatient, model.arithmetic);
    const auto placed =
        MakePlacedDevice(gpu, MakeCpuDevice({1, {}, true, CpuLevel::kReference}), experts);
    LoadedRank rank(placed, program, model.source);
    for (int32_t at = 0; at < model.tokens; ++at, ++run.steps) {
        gpu->LookLate(at == late_piece);
        const int32_t token = (at * 31 + 7) % 48;
        const Status status = rank.Run({&token, 1}, at, {});
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        std::vector<float> out(static_cast<size_t>(model.vocab));
        EXPECT_TRUE(rank.executable().ReadFloats(program.Find("logits"), 0, out).ok());
        run.logits.insert(run.logits.end(), out.begin(), out.end());
    }
    if (gpu->signal() != nullptr) run.exchanges = gpu->signal()->exchanges();
    return run;
}

// One hand-over for each layer with experts, within the submission; and a host that the device does
// not wait for changes no bits.
TEST(VulkanGate, ExpertsOfTheHostCostAHandOverForEachLayer) {
    WEFT_NEEDS_LAVAPIPE();
    for (const char* const name : {"qwen2moe", "gptOss"}) {
        if (name == std::string("gptOss") && !weft::test::Nightly()) continue;
        SCOPED_TRACE(name);
        const GoldenProgram golden({name, true}, false);
        const Model model{*golden.source, golden.hyper.vocab, golden.Build(DType::kF32, 1), {}, 3};
        const PlacedRun split = RunPlaced(model, DeviceSum::kSplit);
        ASSERT_GT(split.runs, 0);
        EXPECT_LE(split.runs, golden.hyper.layers);
        int64_t exchanged = 0;
        for (int tries = 0; tries < 10 && exchanged < split.steps * split.runs; ++tries) {
            const PlacedRun spin = RunPlaced(model, DeviceSum::kSpin);
            ASSERT_EQ(spin.logits, split.logits);
            exchanged = spin.exchanges;
        }
        EXPECT_EQ(exchanged, split.steps * split.runs);
        const PlacedRun late = RunPlaced(model, DeviceSum::kSpin, 1);
        EXPECT_EQ(late.logits, split.logits);
        EXPECT_LT(late.exchanges, split.steps * split.runs);
    }
}

// A device that cancels a sum runs to the end of its submission, and copies the input of the next
// transfer into host memory; the host may read the data of the sum only after that.
TEST(VulkanGate, LatePollingHostChangesNoBits) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_NEEDS_LAVAPIPE();
    const RanksRun split = RunRanks(DeviceSum::kSplit, 1);
    const RanksRun spin = RunRanks(DeviceSum::kSpin, 1, {.looks_late = 0});
    EXPECT_EQ(spin.logits[0], split.logits[0]);
    EXPECT_EQ(spin.logits[1], split.logits[0]);
    EXPECT_LE(spin.exchanges[0], 1);
}

}  // namespace
}  // namespace weft::backend::on_gpu
