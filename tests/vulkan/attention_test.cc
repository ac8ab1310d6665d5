// Attention on a GPU against the plain formula in double (support/attention_case.h), over random
// shapes, types, page tables and partitions of the heads; the values it writes into the cache; that
// a row's bits depend on that row alone; copies of pages.
#include <gtest/gtest.h>

#include "support/nightly.h"
#include "vulkan/attention_on_gpu.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::test::AttentionCase;
using kernels::test::AttentionShape;
using kernels::test::Random;
using test::AttentionOnGpu;
using test::Describe;
using test::ExpectAttention;
using test::SameBits;
using test::StepRows;

void Check(const std::shared_ptr<gpu::Device>& device, const AttentionShape& shape, int number) {
    AttentionCase problem(shape, static_cast<uint32_t>(number));
    const kernels::test::Ops reference{kernels::reference::Table(), "reference"};
    if (shape.HoldsBlocks()) problem.WriteAll(reference);  // Expected() reads these values
    AttentionOnGpu gpu(device, shape, problem);
    for (const bool simplest : {false, true}) {
        const std::string what =
            Describe(shape, number) + (simplest ? ", the simplest kernel" : "");
        ExpectAttention(gpu.Attend(gpu.AllRows(), simplest), problem, shape, what);
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, EqualsThePlainFormula) {
    WEFT_VULKAN(device);
    Random random(1);
    for (int number = 0; number < 12; ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        shape.first_head = random.Int(0, 2);
        // (Compiling kernels takes most of the time, and each shape has its own.)
        if (!weft::test::InTurn(static_cast<size_t>(number), 2)) continue;
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, OtherValuesAndChunks) {
    WEFT_VULKAN(device);
    Random random(5);
    for (int number = 0; number < (weft::test::Nightly() ? 10 : 5); ++number) {
        AttentionShape shape = kernels::test::RandomOtherShape(random);
        if (number % 2 == 0) shape.sequences = {{random.Int(0, 200), 1}, {random.Int(0, 99), 1}};
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

// Blocks in one cache or in both, with odd contexts.
TEST(VulkanAttention, Blocks) {
    WEFT_VULKAN(device);
    using enum DType;
    int number = 0;
    for (const auto& [keys, values, head_dim] : {std::tuple{kQ4_0, kQ4_0, 64},
                                                 {kQ5_1, kQ5_1, 96},
                                                 {kQ8_0, kQ4_0, 128},
                                                 {kQ4_0, kF16, 64},
                                                 {kBF16, kQ5_1, 32}}) {
        if (!weft::test::InTurn(static_cast<size_t>(number), 2)) {
            ++number;
            continue;
        }
        for (const int64_t rows : {1, 13}) {
            AttentionShape shape;
            shape.dtype = keys, shape.value_dtype = values, shape.head_dim = head_dim;
            shape.sequences = {{141, rows}, {0, 1}, {63, 2}};
            Check(device, shape, number);
            if (HasFatalFailure()) return;
        }
        ++number;
    }
}

TEST(VulkanAttention, StepsOfOneTokenOfManySequences) {
    WEFT_VULKAN(device);
    Random random(2);
    for (int number = 0; number < (weft::test::Nightly() ? 6 : 2); ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        shape.sequences.clear();
        for (int64_t i = random.Pick<int64_t>({2, 8, 9, 33}); i > 0; --i) {
            shape.sequences.emplace_back(random.Int(0, 300), 1);
        }
        Check(device, shape, number);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttention, LongContexts) {
    WEFT_VULKAN(device);
    int number = 0;
    for (const int64_t window : {0, 700}) {
        for (const int64_t rows : {1, 3, 20}) {
            AttentionShape shape;
            shape.head_dim = 64, shape.heads = 4, shape.group = 4;
            shape.window = window;
            shape.sinks = rows == 3;
            shape.slopes = rows == 1;
            shape.sequences = {{2000, rows}, {5, 1}};
            Check(device, shape, number++);
            if (HasFatalFailure()) return;
        }
    }
}

// Files give 2^31 - 1 for "no window"; the kernel has bits of its own there.
TEST(VulkanAttention, WindowsOfMoreKeysThanAnyCacheHideNone) {
    WEFT_VULKAN(device);
    int number = 0;
    for (const int64_t window : {int64_t{1} << 30, (int64_t{1} << 31) - 1}) {
        AttentionShape shape;
        shape.head_dim = 32, shape.heads = 2, shape.group = 1;
        shape.window = window;
        shape.sequences = {{20, 3}, {5, 1}};
        Check(device, shape, number++);
        if (HasFatalFailure()) return;
    }
}

// Encoders: rows see later rows, in windows or all of them; several texts in a step, and texts of
// more keys than a chunk has.
TEST(VulkanAttention, OfLaterRows) {
    WEFT_VULKAN(device);
    int number = 0;
    for (const int64_t window : {0, 9, 200}) {
        for (const auto& sequences : std::vector<std::vector<std::pair<int64_t, int64_t>>>{
                 {{0, 7}}, {{0, 5}, {0, 300}, {0, 1}}, {{400, 4}, {16380, 3}}}) {
            AttentionShape shape;
            shape.dtype = number % 2 == 0 ? DType::kF32 : DType::kF16;
            shape.head_dim = 32, shape.heads = 2, shape.group = 1;
            shape.window = window;
            shape.ahead = true;
            shape.sequences = sequences;
            Check(device, shape, number++);
            if (HasFatalFailure()) return;
        }
    }
}

// Positions from which a chunk has more than 128 keys.
TEST(VulkanAttention, VeryLongContexts) {
    WEFT_VULKAN(device);
    AttentionShape shape;
    shape.head_dim = 32, shape.heads = 2, shape.group = 2;
    shape.sequences = {{16383, 1}, {17000, 2}};
    Check(device, shape, 1);
}

// A step of single rows uses smaller tiles than a step with a prompt, and gives the same bits.
TEST(VulkanAttention, SmallerTilesHaveTheSameBits) {
    WEFT_VULKAN(device);
    for (const int64_t head_dim : {20, 64, 128}) {
        if (head_dim == 128 && !weft::test::Nightly()) continue;
        AttentionShape shape;
        shape.head_dim = head_dim, shape.heads = 4, shape.group = head_dim == 64 ? 1 : 4;
        shape.sequences.clear();
        for (int i = 0; i < 9; ++i) shape.sequences.emplace_back(50 * i, 1);
        shape.sequences.emplace_back(7, 5);
        AttentionCase problem(shape, 7);
        AttentionOnGpu gpu(device, shape, problem);
        std::vector<StepRows> step = gpu.AllRows();
        std::vector<float> all = gpu.Attend(step);
        step.pop_back();
        const std::vector<float> single = gpu.Attend(step);
        all.resize(single.size());
        EXPECT_TRUE(SameBits(all, single)) << head_dim;
    }
}

// Scores large enough to overflow exp.
TEST(VulkanAttention, LargeScoresStayFinite) {
    WEFT_VULKAN(device);
    for (const int64_t rows : {1, 20}) {
        AttentionShape shape;
        shape.dtype = DType::kF32;
        shape.deviation = 40;
        shape.sequences = {{100, rows}};
        Check(device, shape, 3);
    }
}

// (In all these tests, the cache holds NaN before the window.)
TEST(VulkanAttention, PagesOutsideTheWindowAreNotRead) {
    WEFT_VULKAN(device);
    for (const int64_t rows : {1, 2, 12}) {
        AttentionShape shape;
        shape.window = 70;
        shape.sequences = {{400, rows}, {64, 1}};
        AttentionCase problem(shape, 9);
        AttentionOnGpu gpu(device, shape, problem);
        const std::vector<float> seen = gpu.Attend(gpu.AllRows());
        problem.HidePagesOutsideWindow();
        AttentionOnGpu hidden(device, shape, problem);
        EXPECT_TRUE(SameBits(seen, hidden.Attend(hidden.AllRows()))) << rows << " rows";
    }
}

// Sequence 0 has the same bits alone, among others, and in steps of other sizes. Steps of at most 8
// rows use one kernel, larger ones another.
TEST(VulkanAttention, BitsDependOnTheRowAlone) {
    WEFT_VULKAN(device);
    Random random(4);
    for (int number = 0; number < (weft::test::Nightly() ? 8 : 2); ++number) {
        AttentionShape shape = kernels::test::RandomShape(random);
        const auto rows = static_cast<int32_t>(number % 2 == 0 ? 1 : 26);
        shape.sequences = {{random.Int(0, 600), rows}};
        for (int i = 0; i < 7; ++i) shape.sequences.emplace_back(random.Int(0, 900), 1);
        AttentionCase problem(shape, static_cast<uint32_t>(number));
        AttentionOnGpu gpu(device, shape, problem);
        const std::vector<float> alone = gpu.Attend({{0, 0, rows}});
        std::vector<float> among = gpu.Attend(gpu.AllRows());
        among.resize(alone.size());
        ASSERT_TRUE(SameBits(alone, among)) << Describe(shape, number);
        if (rows == 1) {
            const std::vector<float> simplest = gpu.Attend({{0, 0, 1}}, true);
            ASSERT_TRUE(SameBits(alone, simplest)) << Describe(shape, number);
            continue;
        }
        std::vector<float> cut = gpu.Attend({{0, 0, 11}});
        const std::vector<float> rest = gpu.Attend({{0, 11, 15}});
        cut.insert(cut.end(), rest.begin(), rest.end());
        ASSERT_TRUE(SameBits(alone, cut)) << Describe(shape, number) << ", in two steps";
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
