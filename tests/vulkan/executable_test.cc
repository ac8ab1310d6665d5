// Whole Programs on a Vulkan device against the CPU's reference kernels: steps of any partition,
// tensor ranks, copied pages, probes, traces; and Programs that are refused before anything is
// loaded.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "backend/gpu/dry_run.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/record/submission_budget.h"
#include "backend/memory_plan.h"
#include "coll/comm.h"
#include "net/local.h"
#include "support/golden_models.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "vulkan/golden_program.h"
#include "vulkan/usable_device.h"

namespace weft::backend {
namespace {

using support::LoadedRank;
using support::OneGroup;

double ErrorOf(std::span<const float> got, std::span<const float> want) {
    if (got.size() != want.size()) return INFINITY;
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        error += std::pow(static_cast<double>(got[i]) - want[i], 2);
        size += std::pow(static_cast<double>(want[i]), 2);
    }
    return std::sqrt(error / size);
}

// Float32 throughout: results differ by the order of sums (2^-24 each over a few hundred terms and
// two layers), and by roots, exponentials and divisions, which may be 3 units off.
constexpr double kVulkanError = 5e-5;

struct TinyCase {
    model::Hyper hyper;
    support::TinySource source;
    explicit TinyCase(const std::string& architecture, bool experts = false)
        : hyper(experts ? support::TinyExpertHyper(architecture)
                        : support::TinyHyper(architecture, architecture == "qwen2")),
          source(hyper) {}
    explicit TinyCase(const model::Hyper& given) : hyper(given), source(hyper) {}
    std::vector<program::Program> Programs(int tp, bool float64_reductions = false) const {
        model::BuildOptions options;
        options.kv_dtype = DType::kF32;
        options.target.float64_reductions = float64_reductions;
        model::Layout layout;
        layout.tp = tp;
        return support::Build(hyper, source, layout, options);
    }
    std::vector<int32_t> Tokens(size_t count) const {
        std::vector<int32_t> tokens(count);
        for (size_t i = 0; i < count; ++i) {
            tokens[i] = static_cast<int32_t>((i * 31 + 7) % static_cast<size_t>(hyper.vocab));
        }
        return tokens;
    }
    std::vector<float> Reference(std::span<const int32_t> tokens) const {
        return LoadedRank(Programs(1)[0], source, {}).Logits(tokens, 1);
    }
};

// ---- Models -------------------------------------------------------------------------------------

TEST(VulkanExecutable, AnyPartitionIntoStepsGivesTheReference) {
    WEFT_NEEDS_VULKAN();
    const char* const architectures[] = {"llama", "qwen2", "qwen3"};
    for (const char* architecture : weft::test::Some(architectures, 3, 1)) {
        const TinyCase c(architecture);
        const std::vector<int32_t> tokens = c.Tokens(70);
        const std::vector<float> want = c.Reference(tokens);
        LoadedRank rank(TheVulkan(), c.Programs(1)[0], c.source);
        for (size_t piece : {size_t{64}, size_t{1}, size_t{7}}) {
            const std::vector<float> got = rank.Logits(tokens, piece);
            EXPECT_FALSE(!(ErrorOf(got, want) <= kVulkanError))
                << architecture << ", pieces of " << piece << ": " << ErrorOf(got, want);
        }
    }
}

TEST(VulkanExecutable, ExpertsGiveTheReference) {
    WEFT_NEEDS_VULKAN();
    const char* const architectures[] = {"llama", "qwen3moe", "qwen2moe"};
    for (const char* architecture : weft::test::Some(architectures, 2)) {
        const TinyCase c(architecture, true);
        const std::vector<int32_t> tokens = c.Tokens(40);
        const std::vector<float> want = c.Reference(tokens);
        LoadedRank rank(TheVulkan(), c.Programs(1)[0], c.source);
        for (size_t piece : {size_t{40}, size_t{1}}) {
            const std::vector<float> got = rank.Logits(tokens, piece);
            EXPECT_FALSE(!(ErrorOf(got, want) <= kVulkanError))
                << architecture << ", pieces of " << piece << ": " << ErrorOf(got, want);
        }
    }
}

// Rows of up to 40 positions attend to five of them, and one layer reuses the choice of another; or
// rows attend to two blocks of three.
void CheckSparse(const char* name) {
    const on_gpu::GoldenProgram c({name, true});
    const program::Program program = c.Build(DType::kF32)[0];
    const std::vector<int32_t> tokens = c.Tokens(40);
    const std::vector<float> want = LoadedRank(program, *c.source, {}).Logits(tokens, 1);
    LoadedRank rank(TheVulkan(), program, *c.source);
    const std::vector<float> alone = rank.Logits(tokens, 1);
    EXPECT_FALSE(!(ErrorOf(alone, want) <= kVulkanError)) << ErrorOf(alone, want);
    EXPECT_EQ(rank.Logits(tokens, 7), alone);
    const std::vector<float> whole = rank.Logits(tokens, 40);
    EXPECT_FALSE(!(ErrorOf(whole, want) <= kVulkanError)) << ErrorOf(whole, want);
}

TEST(VulkanExecutable, SparseAttention) {
    WEFT_NEEDS_VULKAN();
    CheckSparse("glmDsaTop");
    if (weft::test::Nightly()) CheckSparse("minimaxM3Top");
}

// Rows have the same bits alone and in steps of few rows.
TEST(VulkanExecutable, RowsOfSmallStepsHaveTheSameBits) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const std::vector<int32_t> tokens = c.Tokens(24);
    LoadedRank rank(TheVulkan(), c.Programs(1)[0], c.source);
    const std::vector<float> alone = rank.Logits(tokens, 1);
    EXPECT_EQ(rank.Logits(tokens, 3), alone);
    EXPECT_EQ(rank.Logits(tokens, 8), alone);
    EXPECT_EQ(rank.Logits(tokens, 1), alone);
}

// Layers with recurrent state: the reference's logits for any partition into steps, the same bits
// in small steps, and the same again from a saved intermediate state.
TEST(VulkanExecutable, RecurrentState) {
    WEFT_NEEDS_VULKAN();
    for (const bool cycles : weft::test::Some(std::array{true, false}, 2)) {
        const TinyCase c(support::TinyRecurrentHyper(cycles));
        const std::vector<int32_t> tokens = c.Tokens(70);
        const std::vector<float> want = c.Reference(tokens);
        LoadedRank rank(TheVulkan(), c.Programs(1)[0], c.source);
        for (const size_t piece : {size_t{64}, size_t{1}, size_t{7}}) {
            EXPECT_FALSE(!(ErrorOf(rank.Logits(tokens, piece), want) <= kVulkanError)) << piece;
        }
        const auto few = std::span(tokens).first(8);
        const std::vector<float> alone = rank.Logits(few, 1);
        EXPECT_EQ(rank.Logits(few, 3), alone);
        const std::vector<int32_t> page = {0};
        const std::vector<StateWrite> between = {{3, 2}};
        const auto run = [&](int32_t begin, int32_t from, std::span<const StateWrite> writes) {
            std::vector<int32_t> positions(few.size() - static_cast<size_t>(begin));
            std::iota(positions.begin(), positions.end(), begin);
            std::vector<int32_t> rows(positions.size());
            std::iota(rows.begin(), rows.end(), 0);
            std::vector<StepSequence> sequences = {
                {0, static_cast<int32_t>(rows.size()), begin, page}};
            sequences[0].state_from = from;
            sequences[0].state_to = 1;
            sequences[0].state_writes = writes;
            const auto now = few.subspan(static_cast<size_t>(begin));
            const Step step{100 + begin, now, positions, sequences, rows};
            EXPECT_TRUE(rank.executable().Run(rank.executable().whole(), step, {}).ok());
            std::vector<float> got(rows.size() * static_cast<size_t>(c.hyper.vocab));
            EXPECT_TRUE(rank.executable().ReadFloats(c.Programs(1)[0].Find("logits"), 0, got).ok());
            return got;
        };
        EXPECT_EQ(run(0, -1, between), alone);
        const size_t half = alone.size() / 2;
        EXPECT_EQ(run(4, 2, {}),
                  std::vector(alone.begin() + static_cast<ptrdiff_t>(half), alone.end()));
    }
}

class VulkanGolden : public testing::TestWithParam<support::GoldenCase> {};

INSTANTIATE_TEST_SUITE_P(All, VulkanGolden, testing::ValuesIn(support::GoldenCases()),
                         [](const auto& test) { return std::string(test.param.name); });

// The bound of tests/backend/golden_test.cc for the CPU is 30 ops of sums over at most 144 columns.
// Here it is doubled, for the errors of a GPU's functions.
TEST_P(VulkanGolden, EqualsTransformers) {
    // (Other families have the kernels of these; backend/golden_test.cc compares them on the CPU.)
    const std::string_view daily[] = {"llama", "qwen2Yarn", "phi3Long", "gemma3", "gemma4",
                                      "olmo2", "granite",   "smollm3",  "lfm2",   "qwen3next"};
    SKIP_TO_NIGHT_UNLESS(std::ranges::find(daily, GetParam().name) != std::end(daily));
    WEFT_NEEDS_VULKAN();
    const test::TempDir dir;
    const std::string path = dir / "golden.gguf";
    support::WriteGolden(GetParam(), path);
    const auto source = model_files::OpenModel(path).value();
    std::vector<int32_t> tokens;
    for (int token : support::GoldenTokens(GetParam())) tokens.push_back(token);
    const std::vector<float> want = support::Golden(GetParam().name + std::string("/logits"));
    const std::map<DType, double> tolerances = {{DType::kF32, 4.4e-5}, {DType::kF16, 2e-3}};
    for (const auto& [type, tolerance] : tolerances) {
        model::BuildOptions options;
        options.kv_dtype = type;
        options.context = 64;
        options.target.float64_reductions = false;
        const model::Hyper hyper = model::ReadHyper(*source).value();
        const program::Program program = support::Build(hyper, *source, {}, options).at(0);
        LoadedRank rank(TheVulkan(), program, *source);
        for (const size_t piece : {size_t{64}, size_t{5}}) {
            const double error = ErrorOf(rank.Logits(tokens, piece), want);
            EXPECT_FALSE(!(error <= tolerance)) << Info(type).name << ": " << error;
        }
    }
}

// ---- Ranks --------------------------------------------------------------------------------------

std::vector<std::vector<float>> OnVulkanRanks(const TinyCase& c, std::span<const int32_t> tokens,
                                              size_t piece) {
    const std::vector<program::Program> programs = c.Programs(2);
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    std::vector<std::vector<float>> got(2);
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, 60'000).value();
        const auto r = static_cast<size_t>(fabric.rank);
        LoadedRank rank(OpenVulkan(), programs[r], c.source);
        got[r] = rank.Logits(tokens, piece, OneGroup(*comm).groups);
    });
    return got;
}

TEST(VulkanExecutable, TensorRanksAreAsNearAndHoldTheSameBits) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("qwen3");
    const std::vector<int32_t> tokens = c.Tokens(20);
    const std::vector<float> want = c.Reference(tokens);
    for (const size_t piece : {size_t{1}, size_t{20}}) {
        const auto got = OnVulkanRanks(c, tokens, piece);
        EXPECT_FALSE(!(ErrorOf(got[0], want) <= kVulkanError)) << ErrorOf(got[0], want);
        EXPECT_EQ(got[0], got[1]) << "tensor ranks differ";
    }
}

// ---- What is read -------------------------------------------------------------------------------

TEST(VulkanExecutable, ReadsValuesAndTopOfARow) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const std::vector<int32_t> tokens = c.Tokens(3);
    const program::Program program = c.Programs(1)[0];
    const program::ValueId logits = program.Find("logits");
    LoadedRank rank(TheVulkan(), program, c.source);
    const std::vector<float> all = rank.Logits(tokens, 3);
    std::vector<float> some(17);
    ASSERT_TRUE(rank.executable().ReadFloats(logits, 45, some).ok());
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 45));
    for (const int64_t row : {0, 2}) {
        for (const size_t count : {size_t{1}, size_t{5}, size_t{40}, size_t{47}}) {
            std::vector<Candidate> got(count), want(count);
            constexpr int64_t kColumns = 47;
            ASSERT_TRUE(rank.executable().ReadTopK(logits, row, kColumns, got).ok());
            TopK({all.data() + row * c.hyper.vocab, static_cast<size_t>(kColumns)}, want);
            for (size_t i = 0; i < count; ++i) {
                EXPECT_EQ(got[i].index, want[i].index) << row << " " << count << " " << i;
                EXPECT_EQ(got[i].value, want[i].value);
            }
        }
    }
}

// A probe reads values after each op, and a trace has the times of each op: both cover all ops.
TEST(VulkanExecutable, ProbesAndTraces) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const std::vector<int32_t> tokens = c.Tokens(4);
    const program::Program program = c.Programs(1)[0];
    LoadedRank gpu(TheVulkan(), program, c.source), cpu(program, c.source, {});
    const std::vector<float> plain = gpu.Logits(tokens, 4);
    const auto probed = [&](LoadedRank& rank) {
        std::map<int32_t, std::vector<float>> seen;
        rank.executable().SetProbe([&](int32_t op, int64_t rows) -> Status {
            const program::ValueId y = program.ops[static_cast<size_t>(op)].outputs[0];
            seen[op].resize(static_cast<size_t>(rows * program.value(y).shape[1]));
            return rank.executable().ReadFloats(y, 0, seen[op]);
        });
        rank.Logits(tokens, 4);
        rank.executable().SetProbe(nullptr);
        return seen;
    };
    const auto got = probed(gpu), want = probed(cpu);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [op, values] : want) {
        EXPECT_FALSE(!(ErrorOf(got.at(op), values) <= kVulkanError)) << "op " << op;
    }
    const int64_t before = gpu.executable().progress();
    gpu.executable().SetTracing(true);
    EXPECT_EQ(gpu.Logits(tokens, 4), plain);
    // Parts of an op and compiled kernels also count as progress, because either may take long on a
    // slow device.
    EXPECT_GE(gpu.executable().progress() - before, static_cast<int64_t>(program.ops.size()));
    const std::span<const OpTiming> timings = gpu.executable().timings();
    ASSERT_EQ(timings.size(), program.ops.size());
    for (size_t i = 0; i < timings.size(); ++i) {
        EXPECT_EQ(timings[i].op, static_cast<int32_t>(i));
        EXPECT_LE(timings[i].begin_ns, timings[i].end_ns);
    }
}

TEST(VulkanExecutable, AProbesErrorEndsTheStep) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    LoadedRank rank(TheVulkan(), c.Programs(1)[0], c.source);
    int64_t seen = 0;
    rank.executable().SetProbe([&](int32_t, int64_t) -> Status {
        if (++seen < 3) return {};
        return MakeError(ErrorCode::kCorrupt, "enough");
    });
    const Status status = rank.Run(c.Tokens(2), 0, {});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "enough");
    EXPECT_EQ(seen, 3);
}

// ---- Pages --------------------------------------------------------------------------------------

// A sequence continues in copies of its pages, which are made in order.
TEST(VulkanExecutable, CopiedPages) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const std::vector<int32_t> tokens = c.Tokens(65);
    const program::Program program = c.Programs(1)[0];
    const program::ValueId logits = program.Find("logits");
    LoadedRank rank(TheVulkan(), program, c.source);
    const std::vector<float> whole = rank.Logits(tokens, 64);
    // The first 64 positions are on page 2, which is copied to 1 by way of 3, and then overwritten.
    const std::vector<int32_t> pages = {1, 0};
    const std::vector<PageCopy> copies = {{2, 3}, {3, 1}, {0, 2}, {2, 2}};
    const std::vector<int32_t> position = {64}, row = {0}, last = {tokens[64]};
    const std::vector<StepSequence> sequences = {{0, 1, 64, pages}};
    const Step step{9, last, position, sequences, row, copies};
    ASSERT_TRUE(rank.executable().Run(rank.executable().whole(), step, {}).ok());
    std::vector<float> got(static_cast<size_t>(c.hyper.vocab));
    ASSERT_TRUE(rank.executable().ReadFloats(logits, 0, got).ok());
    EXPECT_EQ(got, std::vector<float>(whole.end() - c.hyper.vocab, whole.end()));
}

// Two sequences of one step, on separate pages, have the bits that each has alone.
TEST(VulkanExecutable, SequencesOfOneStep) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("qwen3");
    const program::Program program = c.Programs(1)[0];
    const program::ValueId logits = program.Find("logits");
    LoadedRank rank(TheVulkan(), program, c.source);
    const std::vector<int32_t> first = {3}, second = {1};
    const std::vector<int32_t> tokens = {5, 6, 7, 8, 9}, positions = {0, 1, 2, 0, 1}, rows = {2, 4};
    const auto run = [&](size_t begin, size_t count, const std::vector<StepSequence>& sequences,
                         const std::vector<int32_t>& outputs) {
        const Step step{1, std::span(tokens).subspan(begin, count),
                        std::span(positions).subspan(begin, count), sequences, outputs};
        EXPECT_TRUE(rank.executable().Run(rank.executable().whole(), step, {}).ok());
        std::vector<float> got(outputs.size() * static_cast<size_t>(c.hyper.vocab));
        EXPECT_TRUE(rank.executable().ReadFloats(logits, 0, got).ok());
        return got;
    };
    std::vector<float> alone = run(0, 3, {{0, 3, 0, first}}, {2});
    const std::vector<float> other = run(3, 2, {{0, 2, 0, second}}, {1});
    alone.insert(alone.end(), other.begin(), other.end());
    EXPECT_EQ(run(0, 5, {{0, 3, 0, first}, {3, 2, 0, second}}, rows), alone);
}

// ---- Submissions --------------------------------------------------------------------------------

TEST(VulkanPace, ASlowDeviceGetsShortSubmissions) {
    on_gpu::SubmissionBudget budget(gpu::Kind::kIntegrated, 0.2);
    const double op = budget.Estimate({2e9, 1 << 20, 1 << 20, 0});
    EXPECT_TRUE(budget.Fits(10 * op, op));
    EXPECT_FALSE(budget.Took(10 * op, 0.15));
    EXPECT_TRUE(budget.Took(10 * op, 0.5));  // 0.05 s each
    EXPECT_TRUE(budget.Fits(op, op));
    EXPECT_FALSE(budget.Fits(3 * op, op));
    EXPECT_GE(budget.DeadlineMs(10 * op), 10'000 + 500);
    for (int i = 0; i < 200; ++i) EXPECT_FALSE(budget.Took(10 * op, 0.01));
    EXPECT_TRUE(budget.Fits(10 * op, op));  // it has become faster
}

// The effect of one pause (a stopped process, a GPU that woke up) disappears after submissions that
// it made short.
TEST(VulkanPace, ShortSubmissionsRestoreThePace) {
    on_gpu::SubmissionBudget budget(gpu::Kind::kIntegrated, 0.2);
    EXPECT_TRUE(budget.Took(0.1, 10));
    EXPECT_NEAR(budget.slowness(), 100, 1e-9);
    double spent = 0;
    while (spent < 1 && budget.slowness() > 10) {  // 0.1 s each at the estimated pace; 1 in truth
        const double estimate = 0.1 / budget.slowness();
        budget.Took(estimate, estimate);
        spent += estimate;
    }
    EXPECT_LT(spent, 0.3);
    // A tiny submission, whose time is that of the hand-over, does not change the estimate.
    const double before = budget.slowness();
    for (int i = 0; i < 10'000; ++i) budget.Took(1e-7, 5e-5);
    EXPECT_EQ(budget.slowness(), before);
}

TEST(VulkanPace, TooLongOpsAreSplit) {
    on_gpu::SubmissionBudget budget(gpu::Kind::kIntegrated, 0.2);
    EXPECT_EQ(budget.PartsOf(0), 1u);
    EXPECT_EQ(budget.PartsOf(0.09), 1u);
    EXPECT_EQ(budget.PartsOf(0.45), 5u);  // 0.1 s each, half the limit
    budget.Took(0.01, 0.1);
    EXPECT_EQ(budget.PartsOf(0.09), 9u);
    EXPECT_EQ(budget.PartsOf(1e9), 1024u);
}

// A step that is split before every op has the same bits.
TEST(VulkanExecutable, CutSubmissionsChangeNothing) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const std::vector<int32_t> tokens = c.Tokens(30);
    const program::Program program = c.Programs(1)[0];
    LoadedRank whole(TheVulkan(), program, c.source);
    LoadedRank pieces(OpenVulkan({.most_seconds = 1e-12}), program, c.source);
    EXPECT_EQ(pieces.Logits(tokens, 30), whole.Logits(tokens, 30));
    EXPECT_EQ(pieces.Logits(tokens, 4), whole.Logits(tokens, 4));
}

// Weights that go through the ring of mapped buffers, several at once, as loaders do.
TEST(VulkanExecutable, MemoryThatTheHostCannotReach) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama", true);
    const std::vector<int32_t> tokens = c.Tokens(9);
    const program::Program program = c.Programs(1)[0];
    LoadedRank mapped(TheVulkan(), program, c.source);
    const auto apart = OpenVulkan({.maps_memory = false});
    LoadedRank staged(apart, program, c.source);
    const std::vector<float> want = mapped.Logits(tokens, 9);
    EXPECT_EQ(staged.Logits(tokens, 9), want);
    std::vector<std::thread> loaders;
    for (size_t first = 0; first < 6; ++first) {
        loaders.emplace_back([&, first] {
            for (size_t i = first; i < program.values.size(); i += 6) {
                if (program.values[i].storage == program::Storage::kWeight) {
                    staged.Load(c.source, i);
                }
            }
        });
    }
    for (std::thread& loader : loaders) loader.join();
    EXPECT_EQ(staged.Logits(tokens, 9), want);
}

// ---- Refusals -----------------------------------------------------------------------------------

CompileOptions OptionsOf(const program::Program& program) {
    CompileOptions options;
    options.max_tokens = 64;
    options.kv_pages = 4;
    options.keep = {program.Find("logits")};
    return options;
}

TEST(VulkanExecutable, UnsupportedProgramsAreRefusedBeforeLoading) {
    WEFT_NEEDS_VULKAN();
    const TinyCase c("llama");
    const auto device = TheVulkan();
    const program::Program wide = c.Programs(2, true)[0];
    const auto refused = device->Compile({wide}, OptionsOf(wide));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("F64"), std::string::npos) << refused.error().message;

    const program::Program program = c.Programs(1)[0];
    CompileOptions huge = OptionsOf(program);
    huge.kv_pages = int64_t{1} << 40;
    const auto large = device->Compile({program}, huge);
    ASSERT_FALSE(large.ok());
    EXPECT_EQ(large.error().code, ErrorCode::kOutOfMemory) << large.error().message;

    CompileOptions many = OptionsOf(program);
    many.max_tokens = 70'000;  // one workgroup each: Vulkan guarantees 65,535
    const auto steps = device->Compile({program}, many);
    ASSERT_FALSE(steps.ok());
    EXPECT_EQ(steps.error().code, ErrorCode::kUnsupported) << steps.error().message;
    EXPECT_NE(steps.error().message.find("--prefill-chunk"), std::string::npos)
        << steps.error().message;
}

uint64_t Needed(const MemoryUse& use) {
    return use.weight_bytes + use.kv_bytes + use.arena_bytes - use.host_bytes;
}

// A plan for such a GPU has the byte counts of the executable, and weights and cache of any GPU.
TEST(VulkanExecutable, MemoryIsPlannedWithoutADevice) {
    WEFT_NEEDS_VULKAN();
    const auto device = TheVulkan();
    const auto all = gpu::ListDevices(weft::test::TestApi());
    ASSERT_TRUE(all.ok());
    const std::string name = device->info().name;
    const auto own = std::ranges::find_if(*all, [&](const gpu::Description& gpu) {
        return name == fmt::format("{}:{}", gpu::ApiName(gpu.api), gpu.index);
    });
    ASSERT_NE(own, all->end()) << name;
    for (const bool experts : {false, true}) {
        const TinyCase c(experts ? "qwen3moe" : "llama", experts);
        for (const int tp : {1, 2}) {
            const program::Program program = c.Programs(tp)[0];
            for (const int64_t rows : {1, 64, 200}) {
                CompileOptions options = OptionsOf(program);
                options.max_tokens = rows;
                const auto executable = device->Compile({program}, options);
                ASSERT_TRUE(executable.ok()) << executable.error().message;
                const MemoryUse real = (*executable)->memory();
                const auto same =
                    on_gpu::PlanMemory(program, options, *own, on_gpu::ArithmeticOf(*own, {}));
                ASSERT_TRUE(same.ok()) << same.error().message;
                EXPECT_EQ(same->weight_bytes, real.weight_bytes);
                EXPECT_EQ(same->kv_bytes, real.kv_bytes);
                EXPECT_EQ(same->arena_bytes, real.arena_bytes) << rows;
                EXPECT_EQ(same->host_bytes, real.host_bytes);
                // A card's transfers are in memory of the host, beside its own.
                gpu::Description card = *own;
                card.unified = false;
                const auto apart =
                    on_gpu::PlanMemory(program, options, card, on_gpu::ArithmeticOf(*own, {}));
                ASSERT_TRUE(apart.ok()) << apart.error().message;
                EXPECT_EQ(apart->arena_bytes, real.arena_bytes);
                EXPECT_GT(apart->host_bytes, uint64_t{4} << 20);
                EXPECT_LT(apart->host_bytes, apart->arena_bytes);
                EXPECT_TRUE(
                    on_gpu::CheckFits(*apart, {MemoryKind::kDevice, 0, Needed(*apart)}, card).ok());
                EXPECT_FALSE(
                    on_gpu::CheckFits(*apart, {MemoryKind::kDevice, 0, Needed(*apart) - 1}, card)
                        .ok());
                const auto any = PlanMemory({program}, options, {MemoryKind::kDevice, 1, false});
                ASSERT_TRUE(any.ok()) << any.error().message;
                EXPECT_EQ(any->weight_bytes, real.weight_bytes);
                EXPECT_EQ(any->kv_bytes, real.kv_bytes);
            }
        }
    }
}

// Steps that decode at large positions need scratch memory that the largest step does not need: the
// plan includes it.
void ExpectNoStepNeedsMore(const program::Program& program, const on_gpu::Arithmetic& arithmetic) {
    const gpu::Description gpu = on_gpu::CommonGpu();
    CompileOptions options = OptionsOf(program);
    options.max_outputs = 8;
    options.kv_pages = 8192 / options.page_tokens;
    if (arithmetic.split_groups > 0) options.max_tokens = 4 * on_gpu::kMostDividedRows;
    const on_gpu::Fusion fusion(program, options.keep);
    std::vector<on_gpu::StepShape> shapes = on_gpu::LargestOf(options, arithmetic);
    const auto bytes = [&] {
        return on_gpu::PlanScratch(program, fusion, gpu, shapes, {arithmetic}).value().bytes();
    };
    const uint64_t planned = bytes();
    shapes.resize(1);
    EXPECT_LT(bytes(), planned);
    shapes = on_gpu::LargestOf(options, arithmetic);
    on_gpu::StepShape step = shapes[0];
    for (step.rows = 1; step.rows <= 64; ++step.rows) {
        step.sequences = step.blocks = step.rows;
        step.outputs = std::min(step.rows, 8);
        for (step.positions = 256; step.positions <= 8192; step.positions *= 2) {
            shapes.push_back(step);
            EXPECT_EQ(bytes(), planned) << step.rows << " rows at " << step.positions;
            shapes.pop_back();
        }
    }
}

TEST(VulkanExecutable, NoStepNeedsMoreThanWasPlanned) {
    for (const bool experts : {false, true}) {
        const TinyCase c(experts ? "qwen3moe" : "llama", experts);
        for (const int64_t matvecs : {0, 8, 32}) {
            ExpectNoStepNeedsMore(c.Programs(1)[0], {.integer = matvecs > 0,
                                                     .matvec_rows = std::max<int64_t>(matvecs, 8)});
        }
    }
}

// Rows for matrix units have no int8 codes, so steps of as many rows as a matvec takes have the
// most codes. Products of up to 128 rows may need memory for sums of parts.
TEST(VulkanExecutable, NoStepNeedsMoreThanWasPlannedForMatrixUnits) {
    const auto source = model_files::OpenModel("synthetic:smollm2-135m:q8_0:layers=2").value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    model::BuildOptions options;
    options.target.float64_reductions = false;
    const program::Program program = support::Build(hyper, *source, {}, options).at(0);
    for (const auto& [matvecs, groups] : {std::pair{8, 0}, {32, 512}}) {
        ExpectNoStepNeedsMore(program, {.integer = true,
                                        .matrix = on_gpu::Arithmetic::Matrix::kEmulated,
                                        .matvec_rows = matvecs,
                                        .split_groups = groups});
    }
}

// 128 GiB, of which the firmware reserved 0.5 GiB; processes hold 88 GiB.
TEST(VulkanDevice, AnApuHasNoMoreThanItsHost) {
    constexpr uint64_t kGib = uint64_t{1} << 30;
    const auto pool = [](uint32_t vendor, std::optional<uint64_t> apart, uint64_t host = 40) {
        gpu::Description gpu;
        gpu.vendor_id = vendor;
        MemoryPool of{MemoryKind::kUnified, 116 * kGib, 110 * kGib};
        on_gpu::TakeOfHost(gpu, apart, host * kGib, of);
        return of;
    };
    EXPECT_EQ(pool(0x1002, kGib / 2).free_bytes, 40 * kGib + kGib / 2);
    EXPECT_EQ(pool(0x1002, 96 * kGib).free_bytes, 110 * kGib);
    EXPECT_EQ(pool(0x1002, {}).free_bytes, 110 * kGib);  // the host's share of it is unknown
    EXPECT_EQ(pool(0x8086, {}).free_bytes, 40 * kGib);
    EXPECT_EQ(pool(0x8086, {}, 0).free_bytes, 110 * kGib);  // the host's free memory is unknown,
                                                            // too
    EXPECT_FALSE(pool(0x1002, kGib / 2).limited);
    EXPECT_TRUE(pool(0x8086, {}).limited);
}

TEST(VulkanDevice, MemoryThatDoesNotFitSaysTheSumAndWhatSetsTheLimit) {
    gpu::Description gpu;
    gpu.name = "AMD Radeon 8060S";
    gpu.vendor_id = 0x1002;
    gpu.unified = true;
    const MemoryUse use{uint64_t{60} << 30, uint64_t{8} << 30, uint64_t{1} << 30};
    EXPECT_TRUE(on_gpu::CheckFits(use, {MemoryKind::kUnified, 0, uint64_t{69} << 30}, gpu).ok());
    const Status refused =
        on_gpu::CheckFits(use, {MemoryKind::kUnified, uint64_t{64} << 30, uint64_t{62} << 30}, gpu);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    for (const char* said : {"74088185856", "66571993088", "carve-out", "ttm.pages_limit"}) {
        EXPECT_NE(refused.error().message.find(said), std::string::npos)
            << said << " in " << refused.error().message;
    }
}

TEST(VulkanDevice, Names) {
    for (const char* name : {"vulkan", "vulkan:0", "vulkan:12"}) {
        EXPECT_TRUE(on_gpu::IsName(name)) << name;
    }
    for (const char* name :
         {"", "vulkan:", "vulkan:x", "vulkan:-1", "vulkan0", "vulkan:1a", "Vulkan"}) {
        EXPECT_FALSE(on_gpu::IsName(name)) << name;
    }
    EXPECT_TRUE(CheckDeviceName("auto").ok());
}

}  // namespace
}  // namespace weft::backend
