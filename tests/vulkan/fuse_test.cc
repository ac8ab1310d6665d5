// Fused ops: the runs of ops that are found, equal bits with and without fusion, and the number of
// dispatches and barriers of a decode token. Also, a decode step is one submission, which includes
// the top of its logits.
#include "backend/gpu/lower/fuse.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <tuple>

#include "backend/gpu/compile.h"
#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/memory/step_tables.h"
#include "backend/gpu/record/recordings.h"
#include "backend/top.h"
#include "program/communication.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/tiny_model.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/golden_program.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

using program::Program;
using program::Storage;
using program::ValueId;
using support::LoadedRank;

// ---- What is found ------------------------------------------------------------------------------

// Programs written by hand: values [T, 8].
struct Hand {
    Program program;
    ValueId Input(const char* name) {
        return program.AddValue({name, DType::kF32, {program::kTokens, 8}});
    }
    ValueId Vector(const char* name) {
        return program.AddValue({name, DType::kF32, {8}, Storage::kWeight});
    }
    ValueId Emit(program::OpAttributes op, std::vector<ValueId> inputs, const char* name) {
        return program.Emit(std::move(op), std::move(inputs), name, {program::kTokens, 8});
    }
    // Returns the ops of each run.
    std::vector<std::vector<int32_t>> Runs(const std::vector<ValueId>& keep = {}) const {
        const Fusion fusion(program, keep);
        std::vector<std::vector<int32_t>> runs;
        for (const FusedRun& run : fusion.runs()) runs.push_back(run.ops);
        return runs;
    }
};
using Found = std::vector<std::vector<int32_t>>;
constexpr program::RmsNorm kWholeRow{1e-5f, 8};

TEST(VulkanFusion, RunsCrossBlockBoundaries) {
    Hand h;
    const ValueId m = h.Input("m"), x = h.Input("x"), w = h.Vector("w");
    const ValueId biased = h.Emit(program::AddBias{}, {m, w}, "biased");
    const ValueId normed = h.Emit(kWholeRow, {biased, w}, "normed");
    const ValueId scaled = h.Emit(program::Scale{2}, {normed}, "scaled");
    const ValueId sum = h.Emit(program::Add{}, {x, scaled}, "sum");
    const ValueId out = h.Emit(kWholeRow, {sum, w}, "out");
    h.Emit(program::Add{}, {sum, out}, "more");
    EXPECT_EQ(h.Runs(), (Found{{0, 1, 2, 3, 4}}));
    // A value that is read after the step must be written, so the op that computes it is not in the
    // run.
    EXPECT_EQ(h.Runs({scaled}), (Found{{3, 4}}));
    EXPECT_EQ(h.Runs({biased}), (Found{{1, 2, 3, 4}}));
    EXPECT_EQ(h.Runs({sum, out}), (Found{{0, 1, 2, 3, 4}}));
}

TEST(VulkanFusion, NotIfAnotherOpReadsWritesOrSends) {
    const auto runs = [](const auto& between) {
        Hand h;
        const ValueId m = h.Input("m"), x = h.Input("x"), w = h.Vector("w");
        const ValueId normed = h.Emit(kWholeRow, {m, w}, "normed");
        between(h, m, x, normed);
        const ValueId sum = h.Emit(program::Add{}, {x, normed}, "sum");
        h.Emit(program::RmsNorm{1e-5f, 4}, {sum, w}, "of heads");
        return h.Runs();
    };
    EXPECT_EQ(runs([](Hand&, ValueId, ValueId, ValueId) {}), (Found{{0, 1}}));
    // Another reader; another writer of the norm's input; of its output; a transfer.
    EXPECT_EQ(runs([](Hand& h, ValueId, ValueId, ValueId normed) {
                  h.Emit(program::Scale{2}, {normed}, "read");
              }),
              Found{});
    EXPECT_EQ(runs([](Hand& h, ValueId m, ValueId x, ValueId) {
                  h.program.ops.push_back({program::Scale{2}, {x}, {m}});
              }),
              Found{});
    EXPECT_EQ(runs([](Hand& h, ValueId, ValueId x, ValueId normed) {
                  h.program.ops.push_back({program::Scale{2}, {x}, {normed}});
              }),
              Found{});
    EXPECT_EQ(
        runs([](Hand& h, ValueId, ValueId, ValueId) { h.Emit(program::Recv{1}, {}, "received"); }),
        Found{});
}

// Programs of two products of [T, 8] by weights of these types, and the op that gates one by the
// other.
std::vector<std::vector<int32_t>> GluRuns(DType gate_type, DType up_type, bool one_x,
                                          const auto& between) {
    Hand h;
    const ValueId x = h.Input("x"), other = h.Input("other");
    const auto weight = [&](const char* name, DType dtype) {
        return h.program.AddValue({name, dtype, {8, 8}, Storage::kWeight});
    };
    const ValueId a = weight("a", gate_type), b = weight("b", up_type);
    const ValueId gate = h.Emit(program::MatMul{}, {x, a}, "gate");
    const ValueId up = h.Emit(program::MatMul{}, {one_x ? x : other, b}, "up");
    between(h, x, gate);
    h.Emit(program::Glu{}, {gate, up}, "gated");
    return h.Runs();
}

TEST(VulkanFusion, TwoProductsOfOneLayoutAndTheirGlu) {
    const auto nothing = [](Hand&, ValueId, ValueId) {};
    EXPECT_EQ(GluRuns(DType::kF32, DType::kF32, true, nothing), (Found{{0, 1, 2}}));
    // Products of different types, or with another reader than the gate, are not fused.
    EXPECT_EQ(GluRuns(DType::kF32, DType::kF16, true, nothing), (Found{{1, 2}}));
    EXPECT_EQ(GluRuns(DType::kF32, DType::kF32, false, nothing), (Found{{1, 2}}));
    EXPECT_EQ(
        GluRuns(DType::kF32, DType::kF32, true,
                [](Hand& h, ValueId, ValueId gate) { h.Emit(program::Scale{2}, {gate}, "read"); }),
        (Found{{1, 3}}));
    EXPECT_EQ(GluRuns(DType::kF32, DType::kF32, true,
                      [](Hand& h, ValueId x, ValueId gate) {
                          h.program.ops.push_back({program::Adapt{}, {x, gate}, {gate}});
                      }),
              (Found{{1, 3}}));
    // x is written in between.
    EXPECT_EQ(GluRuns(DType::kF32, DType::kF32, true,
                      [](Hand& h, ValueId x, ValueId) {
                          h.program.ops.push_back({program::Scale{2}, {x}, {x}});
                      }),
              Found{});
}

// Fused kernels support float32 and a file's weights; training's other types are not fused.
TEST(VulkanFusion, HalvesAndViewsAreNotFused) {
    for (const Storage storage : {Storage::kWeight, Storage::kActivation}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
            Hand h;
            const auto value = [&](const char* name) {
                return h.program.AddValue({name, dtype, {program::kTokens, 8}});
            };
            const auto weight = [&](const char* name) {
                return h.program.AddValue({name, DType::kF32, {8, 8}, storage});
            };
            const ValueId x = value("x"), gate = value("gate"), up = value("up");
            h.program.ops.push_back({program::MatMul{}, {x, weight("a")}, {gate}});
            h.program.ops.push_back({program::MatMul{}, {x, weight("b")}, {up}});
            h.program.ops.push_back({program::Glu{}, {gate, up}, {value("gated")}});
            const bool plain = storage == Storage::kWeight && dtype == DType::kF32;
            EXPECT_EQ(h.Runs(), plain ? (Found{{0, 1, 2}}) : Found{});
        }
    }
}

// Norms over all heads by sums of squares: the first column has the sums of q, the second of k.
TEST(VulkanFusion, NormsOfAllHeads) {
    const auto runs = [](int64_t q_square, int64_t k_square, bool one_sum) {
        Hand h;
        const ValueId q = h.Input("q"), k = h.Input("k"), v = h.Input("v"), w = h.Vector("w");
        const auto squares = [&](const char* name) {
            return h.program.Emit(program::SumSquares{{{0, 8}, {0, 8}}}, {q, k}, name,
                                  {program::kTokens, 2});
        };
        const ValueId sums = squares("sums"), others = squares("others");
        const ValueId q_norm =
            h.Emit(program::RmsNorm{1e-5f, 8, 16, q_square}, {q, w, sums}, "q norm");
        const ValueId k_norm = h.Emit(program::RmsNorm{1e-5f, 8, 16, k_square},
                                      {k, w, one_sum ? sums : others}, "k norm");
        const auto cache = [&](const char* name) {
            return h.program.AddValue({name, DType::kF16, {2, 4}, Storage::kState});
        };
        program::Attention attention;
        attention.heads = attention.kv_heads = 2;
        attention.head_dim = 4;
        h.Emit(attention, {q_norm, k_norm, v, cache("k cache"), cache("v cache")}, "attention");
        return h.Runs();
    };
    EXPECT_EQ(runs(0, 1, true), (Found{{2, 3, 4}}));
    EXPECT_EQ(runs(1, 1, true), (Found{{3, 4}}));
    EXPECT_EQ(runs(1, 0, true), Found{});
    EXPECT_EQ(runs(0, 1, false), Found{});
}

// Operands of a run stay allocated until the run is computed: no other value may share their
// memory.
TEST(VulkanFusion, OperandsLiveUntilTheRun) {
    Hand h;
    const ValueId m = h.Input("m"), x = h.Input("x");
    const ValueId scaled = h.Emit(program::Scale{2}, {m}, "scaled");
    const ValueId between = h.Emit(program::Scale{3}, {x}, "between");
    const ValueId sum = h.Emit(program::Add{}, {x, scaled}, "sum");
    const Fusion fusion(h.program, {});
    ASSERT_EQ(fusion.runs().size(), 1u);
    EXPECT_TRUE(fusion.Moves(0));
    EXPECT_FALSE(fusion.Moves(2));
    EXPECT_EQ(fusion.RunAt(0), nullptr);
    EXPECT_NE(fusion.RunAt(2), nullptr);
    const program::ArenaPlan apart = program::PlanArena(h.program, 1, 1);
    const program::ArenaPlan together = program::PlanArena(fusion.LivesOf(h.program), 1, 1);
    // x is first used where m is no longer needed, except by the run.
    EXPECT_EQ(apart.offsets[static_cast<size_t>(x)], apart.offsets[static_cast<size_t>(m)]);
    for (const ValueId other : {x, scaled, between, sum}) {
        EXPECT_NE(together.offsets[static_cast<size_t>(other)],
                  together.offsets[static_cast<size_t>(m)]);
    }
}

// ---- Models -------------------------------------------------------------------------------------

struct FusedCase {
    std::string name;
    bool experts = false;
    GoldenName golden() const { return {name, experts}; }
    // Cases of the daily suite: a plain block, and shared experts.
    bool daily() const { return name == "llama" || name == "deepseekV3"; }
    // Counts for a decode token: op by op, and fused.
    int dispatches = 0, barriers = 0;
    int fused_dispatches = 0, fused_barriers = 0;
};
void PrintTo(const FusedCase& c, std::ostream* out) {
    *out << c.name;
}
std::vector<FusedCase> FusedCases() {
    return {
        {"llama", false, 52, 49, 33, 27},     {"qwen2", false, 52, 49, 33, 27},
        {"qwen3Tied", false, 58, 49, 33, 27}, {"granite", false, 60, 57, 35, 29},
        {"olmo2", false, 64, 52, 38, 32},     {"smollm3", false, 66, 54, 43, 35},
        {"phi3Short", false, 52, 49, 33, 27}, {"gemma2", false, 60, 48, 35, 29},
        {"gemma3", false, 125, 101, 64, 52},  {"gemma4", false, 71, 60, 34, 29},
        {"mixtral", true, 58, 55, 36, 30},    {"qwen3moe", true, 64, 55, 36, 30},
        {"qwen2moe", true, 76, 70, 48, 39},   {"deepseekV3", true, 88, 78, 51, 46},
        {"glm4moe", true, 70, 54, 39, 31},    {"minimaxM2", true, 70, 58, 42, 36},
        {"gptOss", true, 61, 58, 36, 30},     {"gemma4Moe", true, 107, 87, 58, 44},
    };
}

// Models in Q8_0, whose products are in int8, and as wide as the blocks require.
std::vector<FusedCase> IntegerCases() {
    return {
        {"llama", false, 68, 62, 36, 30},      {"qwen3", false, 74, 65, 36, 30},
        {"olmo2", false, 80, 68, 42, 36},      {"granite", false, 68, 62, 36, 30},
        {"mixtral", true, 74, 68, 42, 36},     {"qwen3moe", true, 80, 71, 42, 36},
        {"qwen2moe", true, 98, 89, 57, 45},    {"deepseekV3", true, 117, 112, 62, 57},
        {"minimaxM2", true, 86, 74, 48, 42},   {"gptOss", true, 77, 71, 42, 36},
        {"gemma4Moe", true, 132, 109, 67, 53},
    };
}
class VulkanFused : public testing::TestWithParam<FusedCase> {};
INSTANTIATE_TEST_SUITE_P(Models, VulkanFused, testing::ValuesIn(FusedCases()),
                         [](const auto& test) { return test.param.name; });

// Compares the bits of two devices in steps of these row counts.
void ExpectSameBitsOn(const std::shared_ptr<Device>& fusing, const std::shared_ptr<Device>& plain,
                      const Program& program, const model_files::ModelSource& source,
                      std::span<const int32_t> tokens, std::initializer_list<size_t> pieces) {
    LoadedRank fused(fusing, program, source), apart(plain, program, source);
    for (const size_t piece : pieces) {
        EXPECT_EQ(fused.Logits(tokens, piece), apart.Logits(tokens, piece)) << "by " << piece;
    }
}
void ExpectSameBits(const Program& program, const model_files::ModelSource& source,
                    std::span<const int32_t> tokens) {
    const std::shared_ptr<Device> plain = weft::test::kSharedObjects->Get(
        "device without fusion", [] { return OpenVulkan({.fuses = false}); });
    ExpectSameBitsOn(TheVulkan(), plain, program, source, tokens, {13, 5, 1});
}

TEST_P(VulkanFused, SameBits) {
    SKIP_TO_NIGHT_UNLESS(GetParam().daily());
    WEFT_NEEDS_VULKAN();
    const GoldenProgram model(GetParam().golden());
    for (const DType type : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(Info(type).name);
        ExpectSameBits(model.Build(type)[0], *model.source, model.Tokens(13));
    }
}

// Heads that fill blocks of a cache; also heads larger than a workgroup, and of odd sizes.
TEST(VulkanFusion, SameBitsInBlocksAndInOddHeads) {
    WEFT_NEEDS_VULKAN();
    const std::tuple<const char*, int64_t, KvTypes> cases[] = {
        {"llama", 32, {DType::kQ8_0, DType::kQ4_0}},
        {"qwen3", 96, DType::kQ5_1},
        {"llama", 38, {DType::kF16, DType::kBF16}},
        {"llama", 64, {DType::kF32, DType::kQ8_0}},
        {"qwen3", 160, DType::kF32},
        {"qwen3", 2, DType::kF16}};
    for (const auto& [architecture, head_dim, types] : weft::test::Some(cases, 2)) {
        SCOPED_TRACE(fmt::format("{}: {} of {}", architecture, head_dim, types.Name()));
        model::Hyper hyper = support::TinyHyper(architecture, false);
        hyper.head_dim = head_dim;
        support::SetRope(hyper, 100);
        const support::TinySource source(hyper);
        model::BuildOptions options;
        options.kv_dtype = types;
        options.target.float64_reductions = false;
        std::vector<int32_t> tokens(13);
        std::iota(tokens.begin(), tokens.end(), 20);
        ExpectSameBits(support::Build(hyper, source, {}, options)[0], source, tokens);
    }
}

class VulkanFusedIntegers : public testing::TestWithParam<FusedCase> {};
INSTANTIATE_TEST_SUITE_P(Models, VulkanFusedIntegers, testing::ValuesIn(IntegerCases()),
                         [](const auto& test) { return test.param.name; });

constexpr Arithmetic kFusedIntegers{.integer = true};
std::shared_ptr<Device> OpenForIntegers(bool fuses) {
    return OpenVulkan({.fuses = fuses, .arithmetic = kFusedIntegers});
}

// Up to positions that attention splits into several chunks.
TEST_P(VulkanFusedIntegers, SameBits) {
    SKIP_TO_NIGHT_UNLESS(GetParam().name == "llama");
    WEFT_VULKAN(opened);
    if (!opened->description().integer_dot) GTEST_SKIP() << "no integer dot products";
    const auto fusing = weft::test::kSharedObjects->Get("device for integers",
                                                        [] { return OpenForIntegers(true); });
    const auto plain = weft::test::kSharedObjects->Get("device for integers without fusion",
                                                       [] { return OpenForIntegers(false); });
    const GoldenProgram model(GetParam().golden(), true);
    const bool blocks = GetParam().name == "deepseekV3" || GetParam().name == "qwen3";
    const Program program = model.Build(blocks ? DType::kQ8_0 : DType::kF16)[0];
    ExpectSameBitsOn(fusing, plain, program, *model.source, model.Tokens(140), {64, 7});
    ExpectSameBitsOn(fusing, plain, program, *model.source, model.Tokens(9), {1});
}

// One context for all tests, so that kernels are compiled once.
Context& TheContext(const std::shared_ptr<gpu::Device>& device, bool integers = false) {
    return *weft::test::kSharedObjects->Get(integers ? "context of integers" : "context", [&] {
        const Arithmetic arithmetic = integers ? kFusedIntegers : Arithmetic{};
        return std::make_shared<Context>(device, "vulkan", false, arithmetic);
    });
}

// The parts that record a Program, with no weights loaded.
class Rig {
  public:
    Rig(const std::shared_ptr<gpu::Device>& device, const Program& program, bool fuses,
        bool integers = false)
        : chunked_{program},
          context_(TheContext(device, integers)),
          uploader_(context_),
          lowering_(chunked_, DType::kF32, context_, buffers_, uploader_),
          budget_(gpu::Kind::kDiscrete, 1e9),
          keep_{program.Find("logits")},
          fusion_(fuses ? Fusion(program, keep_) : Fusion()),
          program_(chunked_.program),
          recordings_(program_, buffers_, lowering_, *device, budget_) {
        CompileOptions options;
        options.max_tokens = options.max_outputs = 64;
        options.kv_pages = 4;
        options.keep = keep_;
        EXPECT_TRUE(buffers_.Plan(chunked_, fusion_.LivesOf(program_), options).ok());
        EXPECT_TRUE(buffers_.Allocate(*device).ok());
        EXPECT_TRUE(tables_.Allocate(*device, options).ok());
        lowering_.SetTables(tables_.tables());
    }
    Lowering& lowering() { return lowering_; }
    Recording Of(int32_t rows, WantedRows wanted = {}, int32_t positions = 64,
                 const HostSignal* signal = nullptr) {
        RecordingKey key;
        key.options.signal = signal;
        key.shape = {rows, rows, 1, (rows + kBlockRows - 1) / kBlockRows, positions, false};
        key.work = {.ops = {0, program_.ops.size()}, .fusion = &fusion_, .wanted = wanted};
        auto made = recordings_.Make(key);
        EXPECT_TRUE(made.ok()) << made.error().message;
        return std::move(made).value();
    }

  private:
    const program::ChunkedProgram chunked_;
    Context& context_;
    Uploader uploader_;
    Buffers buffers_;
    Lowering lowering_;
    TableMemory tables_;
    SubmissionBudget budget_;
    std::vector<ValueId> keep_;
    Fusion fusion_;
    const Program& program_;
    Recordings recordings_;
};

// A change that increases these counts must state why.
TEST_P(VulkanFused, DispatchesAndBarriersOfADecodeToken) {
    SKIP_TO_NIGHT_UNLESS(GetParam().daily());
    WEFT_VULKAN(device);
    const FusedCase& c = GetParam();
    const Program program = GoldenProgram(c.golden()).Build(DType::kF16)[0];
    const Recording apart = Rig(device, program, false).Of(1);
    const Recording fused = Rig(device, program, true).Of(1);
    EXPECT_EQ(apart.dispatches, c.dispatches);
    EXPECT_EQ(apart.barriers, c.barriers);
    EXPECT_EQ(fused.dispatches, c.fused_dispatches);
    EXPECT_EQ(fused.barriers, c.fused_barriers);
    ASSERT_EQ(fused.stages.size(), 1u);
    EXPECT_EQ(fused.stages[0].submissions.size(), 1u);
}

// Sums over ranks that a submission waits for: for one row, the kernel of the sum also computes the
// ops that follow; for more rows, a separate kernel does.
TEST_P(VulkanFused, SumsOfOneRowContinueWithTheNextOps) {
    SKIP_TO_NIGHT_UNLESS(GetParam().daily());
    WEFT_VULKAN(device);
    const FusedCase& c = GetParam();
    const GoldenProgram model(c.golden());
    if (model.hyper.kv_heads < 2) GTEST_SKIP() << "one head of keys";
    const Program program = model.Build(DType::kF16, 2)[0];
    Context& context = TheContext(device);
    const bool waits = device->description().kind == gpu::Kind::kCpu;
    const double patience = waits ? 1e3 : HostSignal::kPatienceSeconds;
    const auto& signal = weft::test::kSharedObjects->Get(
        "signal", [&] { return HostSignal::Make(*device, context.kernels, patience).value(); });
    ASSERT_TRUE(signal->works()) << signal->why();
    const Fusion fusion(program, std::vector{program.Find("logits")});
    int64_t sums = 0, others = 0, joined = 0;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const bool sum = program.ops[i].kind() == program::OpKind::kAllReduce;
        sums += sum ? 1 : 0;
        others += !sum && program::IsCommunication(program.ops[i].kind()) ? 1 : 0;
        joined +=
            sum && std::ranges::any_of(fusion.runs(),
                                       [&](const FusedRun& run) {
                                           return std::holds_alternative<ResidualRun>(run.what) &&
                                                  std::cmp_equal(run.ops.front(), i + 1);
                                       })
                ? 1
                : 0;
    }
    EXPECT_EQ(joined, 2 * model.hyper.layers);  // the sums after the attention and after the MLP of
                                                // each layer
    Rig rig(device, program, true);
    const Recording split = rig.Of(1), one = rig.Of(1, {}, 64, signal.get());
    EXPECT_EQ(std::ssize(split.stages), sums + others + 1);
    ASSERT_EQ(std::ssize(one.stages), others + 1);
    EXPECT_EQ(one.dispatches, split.dispatches + sums - joined);
    const Recording two_split = rig.Of(2), two = rig.Of(2, {}, 64, signal.get());
    ASSERT_EQ(std::ssize(two.stages), others + 1);
    EXPECT_EQ(two.dispatches, two_split.dispatches + sums);
    EXPECT_EQ(one.barriers - split.barriers, two.barriers - two_split.barriers - joined);
}

// After 128 positions, from which attention has chunks to merge.
TEST_P(VulkanFusedIntegers, DispatchesAndBarriersOfADecodeToken) {
    WEFT_VULKAN(device);
    const FusedCase& c = GetParam();
    const Program program = GoldenProgram(c.golden(), true).Build(DType::kF16)[0];
    const Recording apart = Rig(device, program, false, true).Of(1, {}, 256);
    const Recording fused = Rig(device, program, true, true).Of(1, {}, 256);
    EXPECT_EQ(apart.dispatches, c.dispatches);
    EXPECT_EQ(apart.barriers, c.barriers);
    EXPECT_EQ(fused.dispatches, c.fused_dispatches);
    EXPECT_EQ(fused.barriers, c.fused_barriers);
}

// Gate, up and down share the plan of their experts' rows, in steps with enough rows for a plan;
// each layer has its own.
TEST(VulkanFusion, ExpertsArePlannedOncePerLayer) {
    WEFT_VULKAN(device);
    const GoldenProgram model({"mixtral", true});
    const Program program = model.Build(DType::kF16)[0];
    Rig rig(device, program, true);
    constexpr uint32_t kPlanArgsBytes = 40;  // arguments of expert_order.comp
    const auto plans = [&](int32_t rows) {
        const StepShape shape = {rows, rows, 1, (rows + kBlockRows - 1) / kBlockRows, 64, false};
        const auto all = rig.lowering().LowerStep(shape, {{0, program.ops.size()}}).value();
        const gpu::Kernel* const plan =
            TheContext(device).kernels.Get("expert_order", {kWalkGroup}, kPlanArgsBytes, 0).value();
        return std::ranges::count(all, plan, &Dispatch::kernel);
    };
    EXPECT_EQ(plans(8), 0);
    EXPECT_EQ(plans(9), model.hyper.layers);
    EXPECT_EQ(plans(64), model.hyper.layers);
}

// ---- The best, within the step ------------------------------------------------------------------

class TopInStep : public testing::Test {
  protected:
    void SetUp() override {
        const FusedCase c{"llama"};
        model_.emplace(c.golden());
        program_ = model_->Build(DType::kF16)[0];
        logits_ = program_.Find("logits");
        vocab_ = model_->hyper.vocab;
    }
    void Compile(const std::shared_ptr<gpu::Device>& device) {
        device_ = device;
        CompileOptions options;
        options.max_tokens = options.max_outputs = 80;
        options.kv_pages = 2;
        options.keep = {logits_};
        const MemoryPool pool{MemoryKind::kHost, uint64_t{1} << 40, uint64_t{1} << 40};
        context_ = std::make_shared<Context>(device, "vulkan", false);
        context_->limits.most_seconds = 1e9;
        executable_ = CompileForVulkan({program_}, options, context_, pool).value();
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const program::Value& value = program_.values[i];
            if (value.storage != Storage::kWeight) continue;
            const auto read = [&](int64_t row, int64_t count, std::span<std::byte> out) {
                return model::ReadWeight(*model_->source, value, row, count, out, nullptr);
            };
            ASSERT_TRUE(executable_->LoadWeight(static_cast<ValueId>(i), read).ok());
        }
    }
    // Runs a step of the first rows of a text, with logits for all of them.
    void Run(size_t rows, WantedRows wanted) {
        const std::vector<int32_t> tokens = model_->Tokens(rows), pages = {1, 0};
        std::vector<int32_t> positions(rows);
        std::iota(positions.begin(), positions.end(), 0);
        const std::vector<StepSequence> sequences = {{0, static_cast<int32_t>(rows), 0, pages}};
        Step step{1, tokens, positions, sequences, positions};
        step.wanted = wanted;
        const Status status = executable_->Run(executable_->whole(), step, {});
        ASSERT_TRUE(status.ok()) << status.error().message;
    }
    // Reads a whole row; returns the number of submissions that took.
    uint64_t ReadsRow(int64_t row, std::vector<float>& values) {
        values.resize(static_cast<size_t>(vocab_));
        const uint64_t before = Submissions();
        EXPECT_TRUE(executable_->ReadFloats(logits_, row * vocab_, values).ok());
        return Submissions() - before - 1;
    }
    // Checks the result against TopK of the row's logits; returns the number of submissions that
    // took.
    uint64_t ReadsTop(int64_t row, int64_t columns, size_t count) {
        std::vector<Candidate> got(count), want(count);
        const uint64_t before = Submissions();
        EXPECT_TRUE(executable_->ReadTopK(logits_, row, columns, got).ok());
        const uint64_t made = Submissions() - before - 1;
        std::vector<float> values(static_cast<size_t>(columns));
        EXPECT_TRUE(executable_->ReadFloats(logits_, row * vocab_, values).ok());
        TopK(values, want);
        for (size_t i = 0; i < count; ++i) {
            EXPECT_EQ(got[i].index, want[i].index) << row << " " << columns << " " << i;
            EXPECT_EQ(got[i].value, want[i].value);
        }
        return made;
    }
    // Makes an empty submission and returns its number; differences of these count submissions.
    uint64_t Submissions() {
        const auto commands = device_->Record().value();
        EXPECT_TRUE(commands->End().ok());
        const uint64_t number = device_->Submit(*commands).value();
        EXPECT_TRUE(device_->Wait(number, Deadline::In(60'000)).ok());
        return number;
    }

    std::optional<GoldenProgram> model_;
    Program program_;
    ValueId logits_ = program::kNoValue;
    int64_t vocab_ = 0;
    std::shared_ptr<gpu::Device> device_;
    std::shared_ptr<Context> context_;
    std::unique_ptr<Executable> executable_;
};

TEST_F(TopInStep, ADecodeTokenIsOneSubmission) {
    WEFT_VULKAN(device);
    Compile(device);
    Run(1, {logits_, vocab_, 1});  // loads, and records
    for (const int32_t count : {1, 5, 40}) {
        const uint64_t before = Submissions();
        Run(1, {logits_, vocab_, count});
        EXPECT_EQ(Submissions() - before - 1, 1u);
        EXPECT_EQ(ReadsTop(0, vocab_, static_cast<size_t>(count)), 0u);
        EXPECT_EQ(ReadsTop(0, vocab_, 1), 0u);  // fewer than the step requested
    }
}

TEST_F(TopInStep, EachRowHasItsTop) {
    WEFT_VULKAN(device);
    Compile(device);
    for (const size_t rows : {size_t{2}, size_t{7}, size_t{64}, size_t{80}}) {
        Run(rows, {logits_, vocab_ - 3, 5});
        for (const size_t row : {size_t{0}, rows / 2, rows - 1}) {
            EXPECT_EQ(ReadsTop(static_cast<int64_t>(row), vocab_ - 3, 5), 0u);
        }
    }
}

// Parts of many values are read, or written, in one submission of up to 4 MiB.
TEST_F(TopInStep, PartsOfManyValuesTakeOneSubmission) {
    WEFT_VULKAN(device);
    for (const bool maps : {true, false}) {
        Compile(device);
        context_->limits.maps_memory = maps && context_->limits.maps_memory;
        Run(64, {});
        std::vector<std::vector<std::byte>> pages, copies;
        std::vector<ReadPart> reads;
        std::vector<WritePart> writes;
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const program::Value& value = program_.values[i];
            if (value.storage != Storage::kState) continue;
            const int64_t bytes = program::StateBytes(value, 64);
            for (const int64_t begin : {bytes, bytes + 1}) {  // odd bytes, too
                pages.emplace_back(static_cast<size_t>(begin - (begin - bytes) - 3));
                copies.emplace_back(pages.back().size());
                reads.push_back({static_cast<ValueId>(i), begin, {}});
            }
        }
        ASSERT_GE(reads.size(), 8u);
        for (size_t i = 0; i < reads.size(); ++i) reads[i].out = pages[i];
        uint64_t before = Submissions();
        ASSERT_TRUE(executable_->ReadAll(reads).ok());
        EXPECT_EQ(Submissions() - before - 1, 1u);
        for (size_t i = 0; i < reads.size(); ++i) {
            ASSERT_TRUE(executable_->Read(reads[i].id, reads[i].first_byte, copies[i]).ok());
            EXPECT_EQ(copies[i], pages[i]) << i;
            for (std::byte& byte : pages[i]) byte ^= std::byte{0x5a};
            if (i % 2 == 0) writes.push_back({reads[i].id, reads[i].first_byte, pages[i]});
        }
        before = Submissions();
        ASSERT_TRUE(executable_->WriteAll(writes).ok());
        EXPECT_LE(Submissions() - before - 1, 1u);
        for (size_t i = 0; i < reads.size(); i += 2) {
            ASSERT_TRUE(executable_->Read(reads[i].id, reads[i].first_byte, copies[i]).ok());
            EXPECT_EQ(copies[i], pages[i]) << i;
        }
    }
}

// A request that the step did not announce, or that exceeds the limits, takes a submission of its
// own; a request of an earlier step does not apply to this one.
TEST_F(TopInStep, OtherRequestsTakeASubmission) {
    WEFT_VULKAN(device);
    Compile(device);
    Run(3, {logits_, vocab_, 4});
    EXPECT_EQ(ReadsTop(2, vocab_, 4), 0u);
    EXPECT_EQ(ReadsTop(2, vocab_, 5), 1u);
    EXPECT_EQ(ReadsTop(2, vocab_ - 1, 4), 1u);
    Run(2, {});
    EXPECT_EQ(ReadsTop(1, vocab_, 4), 1u);
    Run(3, {logits_, vocab_, static_cast<int32_t>(vocab_)});
    EXPECT_EQ(ReadsTop(1, vocab_, static_cast<size_t>(vocab_)), 1u);
    Run(3, {logits_, vocab_ + 1, 4});
    EXPECT_EQ(ReadsTop(1, vocab_, 4), 1u);
}

// A sampler that draws from all logits also gets them within the one submission.
TEST_F(TopInStep, WholeRowsAreRead) {
    WEFT_VULKAN(device);
    Compile(device);
    for (const size_t rows : {size_t{1}, size_t{6}}) {
        const auto last = static_cast<int64_t>(rows) - 1;
        std::vector<float> want, got;
        Run(rows, {});
        EXPECT_EQ(ReadsRow(last, want), 1u);
        EXPECT_TRUE(executable_->HostFloats(logits_, last * vocab_, vocab_).empty());
        for (const int32_t top : {0, 3}) {
            const WantedRows wanted{logits_, vocab_, top, true};
            Run(rows, wanted);  // records
            const uint64_t before = Submissions();
            Run(rows, wanted);
            EXPECT_EQ(Submissions() - before - 1, 1u);
            EXPECT_EQ(ReadsRow(last, got), 0u);
            EXPECT_EQ(got, want);
            const auto held = executable_->HostFloats(logits_, last * vocab_, vocab_);
            EXPECT_TRUE(std::ranges::equal(held, want));
            EXPECT_EQ(ReadsTop(last, vocab_, 3), top == 3 ? 0u : 1u);
        }
    }
    // A row that the step does not have reads as before: the previous contents.
    std::vector<float> other;
    EXPECT_EQ(ReadsRow(6, other), 1u);
    EXPECT_TRUE(executable_->HostFloats(logits_, 6 * vocab_, vocab_).empty());
}

// 32 requests with a vocabulary of 128,000 tokens take 16 MB.
TEST_F(TopInStep, ThereIsRoomForTheWholeRowsOfAllOutputs) {
    CompileOptions options;
    options.max_tokens = 512;
    options.kv_pages = 2;
    options.keep = {logits_};
    const program::ChunkedProgram chunked{program_};
    const uint64_t row_bytes = sizeof(float) * static_cast<uint64_t>(vocab_);
    for (const uint64_t rows :
         {uint64_t{1}, uint64_t{32}, 1 + Buffers::kMostWholeBytes / row_bytes}) {
        options.max_outputs = static_cast<int64_t>(rows);
        Buffers buffers;
        ASSERT_TRUE(buffers.Plan(chunked, program_, options).ok());
        EXPECT_EQ(buffers.whole_bytes(), std::min(rows * row_bytes, Buffers::kMostWholeBytes));
    }
}

// A trace and a probe see ops one by one, so the top takes its own submission.
TEST_F(TopInStep, NotWithATraceOrProbe) {
    WEFT_VULKAN(device);
    Compile(device);
    Run(1, {logits_, vocab_, 1});
    executable_->SetTracing(true);
    Run(1, {logits_, vocab_, 1});
    EXPECT_EQ(executable_->timings().size(), program_.ops.size());
    EXPECT_EQ(ReadsTop(0, vocab_, 1), 1u);
    executable_->SetTracing(false);
    Run(1, {logits_, vocab_, 1});
    EXPECT_EQ(ReadsTop(0, vocab_, 1), 0u);
}

}  // namespace
}  // namespace weft::backend::on_gpu
