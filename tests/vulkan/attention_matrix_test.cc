// Attention of prompts on a GPU's matrix units (emulated by ordinary instructions on a GPU without
// them): against the plain formula in double, with scores and values of all sizes, and that a row's
// bits depend on that row alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backend/gpu/lower/attention_matrix.h"
#include "support/nightly.h"
#include "vulkan/attention_on_gpu.h"
#include "vulkan/matrix_of.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::test::AttentionCase;
using kernels::test::AttentionRounding;
using kernels::test::AttentionShape;
using kernels::test::Random;
using test::AttentionOnGpu;
using test::Describe;
using test::SameBits;

Arithmetic OnUnits(const std::shared_ptr<gpu::Device>& device) {
    return {.matrix = test::MatrixOf(device->description())};
}

// A rounding to f16 is 2^-11, or 2^-10 if the driver truncates. Keys and values that are blocks are
// rounded as well. In steps of up to 300 positions, weights that a driver flushes to zero (each
// below 2^-22 of the largest) add 2^-13.
AttentionRounding RoundingOf(const AttentionShape& shape) {
    const double query = shape.coarse ? 0 : 0x1p-10;
    const double key = Info(shape.dtype).quantized ? 0x1p-10 : 0;
    const double value = Info(shape.ValueType()).quantized ? 0x1p-10 : 0;
    return {query + key, 0x1p-10 + value + 0x1p-13};
}

void ExpectNearFormula(const std::shared_ptr<gpu::Device>& device, const AttentionShape& shape,
                       AttentionCase& problem, int number) {
    const kernels::test::Ops reference{kernels::reference::Table(), "reference"};
    if (shape.HoldsBlocks()) problem.WriteAll(reference);  // Expected() reads these values
    AttentionOnGpu gpu(device, shape, problem);
    gpu.set_arithmetic(OnUnits(device));
    test::ExpectAttention(gpu.Attend(gpu.AllRows()), problem, shape, Describe(shape, number),
                          RoundingOf(shape));
}

// A shape with its first fields set; the others follow in the tests.
AttentionShape ShapeOf(DType dtype, int64_t head_dim, int64_t heads, int64_t group,
                       std::vector<std::pair<int64_t, int64_t>> sequences) {
    AttentionShape shape;
    shape.dtype = dtype, shape.head_dim = head_dim, shape.heads = heads, shape.group = group;
    shape.sequences = std::move(sequences);
    return shape;
}

// Shapes; the first ones daily (compiling kernels takes most of the time).
std::vector<AttentionShape> Shapes() {
    std::vector<AttentionShape> shapes;
    const auto add = [&](AttentionShape shape, auto... edits) {
        (edits(shape), ...);
        shapes.push_back(std::move(shape));
    };
    const auto window = [](int64_t keys, bool chunk = false) {
        return [=](AttentionShape& shape) { shape.window = keys, shape.chunk = chunk; };
    };
    const auto cap = [](float most) { return [=](AttentionShape& s) { s.soft_cap = most; }; };
    const auto values = [](int64_t dims) { return [=](AttentionShape& s) { s.value_dim = dims; }; };
    const auto from = [](int64_t head) { return [=](AttentionShape& s) { s.first_head = head; }; };
    const auto value_type = [](DType type) {
        return [=](AttentionShape& s) { s.value_dtype = type; };
    };
    const auto sinks = [](AttentionShape& shape) { shape.sinks = true; };
    const auto slopes = [](AttentionShape& shape) { shape.slopes = true; };
    const auto coarse = [](AttentionShape& shape) { shape.coarse = true; };
    using enum DType;
    add(ShapeOf(kF16, 64, 8, 4, {{0, 70}, {150, 3}, {65, 17}}), coarse);
    add(ShapeOf(kF16, 64, 8, 4, {{90, 21}}), window(5), sinks);
    add(ShapeOf(kBF16, 128, 5, 7, {{200, 12}, {0, 1}}), cap(2), from(3));
    add(ShapeOf(kF16, 37, 3, 3, {{31, 40}}), values(20), window(40, true));
    add(ShapeOf(kQ5_1, 64, 4, 2, {{90, 21}, {0, 5}}), value_type(kQ4_0), coarse);
    add(ShapeOf(kF16, 64, 6, 2, {{90, 21}}), slopes, coarse);
    if (!weft::test::Nightly()) return shapes;
    add(ShapeOf(kF16, 64, 4, 2, {{90, 21}}), value_type(kQ8_0));
    add(ShapeOf(kQ4_0, 96, 2, 1, {{131, 30}}), value_type(kF16), coarse);
    add(ShapeOf(kBF16, 128, 4, 4, {{67, 20}}), value_type(kQ5_1));
    add(ShapeOf(kF16, 80, 2, 1, {{100, 70}, {3, 9}}), coarse, sinks);
    add(ShapeOf(kF16, 96, 7, 7, {{64, 33}}), cap(50));
    add(ShapeOf(kQ8_0, 128, 16, 8, {{130, 30}, {0, 5}}), coarse);
    add(ShapeOf(kQ8_0, 64, 2, 1, {{190, 65}}), window(64));
    add(ShapeOf(kF16, 192, 16, 16, {{70, 20}}), values(128));
    add(ShapeOf(kBF16, 256, 4, 2, {{30, 66}}), coarse, window(31));
    add(ShapeOf(kF16, 512, 2, 1, {{0, 34}}), coarse);
    add(ShapeOf(kBF16, 101, 2, 2, {{90, 11}}), values(200));
    add(ShapeOf(kF16, 16, 12, 12, {{299, 1}, {0, 9}, {64, 64}}), coarse, from(7));
    return shapes;
}

TEST(VulkanAttentionMatrix, EqualsThePlainFormula) {
    WEFT_VULKAN(device);
    int number = 0;
    for (const AttentionShape& shape : Shapes()) {
        AttentionCase problem(shape, static_cast<uint32_t>(number));
        ExpectNearFormula(device, shape, problem, number++);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanAttentionMatrix, RandomShapes) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_VULKAN(device);
    Random random(11);
    for (int number = 0; number < 25; ++number) {
        AttentionShape shape = kernels::test::RandomOtherShape(random);
        shape.first_head = random.Int(0, 7);
        shape.coarse = number % 2 == 0;
        shape.sequences.emplace_back(random.Int(0, 70), 9);
        AttentionCase problem(shape, static_cast<uint32_t>(number));
        ExpectNearFormula(device, shape, problem, number);
        if (HasFatalFailure()) return;
    }
}

// Each row's largest score grows from tile to tile, by more than a weight's headroom, so that sums
// are multiplied by factors.
TEST(VulkanAttentionMatrix, ScoresThatGrowLate) {
    WEFT_VULKAN(device);
    AttentionShape shape = ShapeOf(DType::kF16, 64, 8, 4, {{280, 16}, {5, 3}});
    shape.coarse = true;
    AttentionCase problem(shape, 2);
    std::vector<float>& keys = problem.keys(0);
    for (size_t i = 0; i < keys.size(); ++i) {
        keys[i] *= std::exp2(static_cast<float>(i / 128) / 50.0f);  // of two heads of 64
    }
    ExpectNearFormula(device, shape, problem, 0);
}

// Scores around 10,000: sums of multiples of 1/8, so that they are exact.
TEST(VulkanAttentionMatrix, ScoresOfTenThousand) {
    WEFT_VULKAN(device);
    AttentionShape shape = ShapeOf(DType::kF16, 64, 8, 4, {{180, 20}});
    AttentionCase problem(shape, 3);
    for (float& value : problem.keys(0)) value = std::round(value * 8) * 16;
    for (float& value : problem.queries()) value = std::round(value * 8) * 16;
    std::vector<double> expected, bound;
    problem.Expected(&expected, &bound);
    AttentionOnGpu gpu(device, shape, problem);
    gpu.set_arithmetic(OnUnits(device));
    const std::vector<float> got = gpu.Attend(gpu.AllRows());
    // Below 3e4, scaling rounds a score by 2^-8 of the unit of weights at most, and a weight by
    // 2^-10.
    const double most = test::MostOf(problem.values(0)), allowed = most * 2.5 * (0x1p-8 + 0x1p-10);
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_FALSE(!(std::fabs(got[i] - expected[i]) <= allowed))
            << i << ": " << got[i] << ", expected " << expected[i];
    }
}

// Keys and values that f16 cannot hold, alone in their row or not.
TEST(VulkanAttentionMatrix, NumbersBeyondHalves) {
    WEFT_VULKAN(device);
    for (const int64_t head_dim : {128, 512}) {
        if (head_dim == 512 && !weft::test::Nightly()) continue;
        AttentionShape shape = ShapeOf(DType::kBF16, head_dim, 5, 7, {{100, 12}});
        shape.soft_cap = head_dim == 128 ? 2 : 0;  // a kernel of another test
        shape.first_head = 3, shape.coarse = true;
        const int64_t width = 2 * head_dim;
        AttentionCase large_keys(shape, 4), large_values(shape, 5), largest(shape, 6);
        for (int64_t t = 0; t < 112; ++t) {
            if (t % 3 == 0) large_keys.keys(0)[static_cast<size_t>(t * width + t % width)] = 1e8f;
            float* const value = large_values.values(0).data() + t * width;
            if (t > 64) std::fill_n(value, width, 70000.0f + static_cast<float>(10 * t));
        }
        for (float& x : large_keys.queries()) x *= 0x1p-24f;
        largest.values(0)[static_cast<size_t>(100 * width)] = -3e38f;
        for (AttentionCase* problem : {&large_keys, &large_values, &largest}) {
            ExpectNearFormula(device, shape, *problem, 0);
            if (HasFatalFailure()) return;
        }
    }
}

// NaN and infinity in a query or in the cache change only rows that see them.
TEST(VulkanAttentionMatrix, NotANumberStaysInItsRows) {
    WEFT_VULKAN(device);
    AttentionShape shape = ShapeOf(DType::kF16, 64, 8, 4, {{60, 40}});
    AttentionCase problem(shape, 5);
    AttentionOnGpu plain(device, shape, problem);
    plain.set_arithmetic(OnUnits(device));
    const std::vector<float> before = plain.Attend(plain.AllRows());
    const auto row_size = static_cast<size_t>(8 * 64);
    problem.queries()[10 * static_cast<size_t>(problem.query_stride())] = NAN;
    problem.keys(0)[(60 + 30) * 128] = INFINITY;  // of row 30 and the first KV head
    AttentionOnGpu gpu(device, shape, problem);
    gpu.set_arithmetic(OnUnits(device));
    const std::vector<float> after = gpu.Attend(gpu.AllRows());
    for (size_t row = 0; row < 40; ++row) {
        for (size_t i = row * row_size; i < (row + 1) * row_size; ++i) {
            const size_t head = i % row_size / 64;
            if (row == 10 && head == 0) {
                EXPECT_TRUE(std::isnan(after[i])) << i;
            } else if (row < 30 || head >= 4) {
                ASSERT_EQ(after[i], before[i]) << "row " << row << ", head " << head;
            }
        }
    }
}

// A prompt has the same bits in one step, in several, and beside other sequences. A step of single
// rows uses smaller workgroups than a step with a prompt, and gives the same bits.
TEST(VulkanAttentionMatrix, BitsDependOnTheRowAlone) {
    WEFT_VULKAN(device);
    for (const AttentionShape& base :
         {ShapeOf(DType::kF16, 64, 8, 4, {}), ShapeOf(DType::kBF16, 128, 7, 7, {}),
          ShapeOf(DType::kF16, 256, 3, 1, {})}) {
        if (base.head_dim != 64 && !weft::test::Nightly()) continue;
        AttentionShape shape = base;
        shape.window = base.head_dim == 128 ? 50 : 0;
        shape.sequences = {{37, 60}};
        for (int i = 0; i < 9; ++i) shape.sequences.emplace_back(40 * i, 1);
        AttentionCase problem(shape, 6);
        AttentionOnGpu gpu(device, shape, problem);
        gpu.set_arithmetic(OnUnits(device));
        const std::vector<float> all = gpu.Attend(gpu.AllRows());
        std::vector<float> cut;
        for (const auto& [first, count] : {std::pair{0, 11}, {11, 40}, {51, 9}}) {
            const std::vector<float> part = gpu.Attend({{0, first, count}});
            cut.insert(cut.end(), part.begin(), part.end());
        }
        std::vector<test::StepRows> step = gpu.AllRows();
        step.erase(step.begin());
        const std::vector<float> single = gpu.Attend(step);
        cut.insert(cut.end(), single.begin(), single.end());
        EXPECT_TRUE(SameBits(all, cut)) << Describe(shape, 0);
        // The kernel for products without matrix units rounds otherwise.
        gpu.set_arithmetic({});
        EXPECT_FALSE(SameBits(all, gpu.Attend(gpu.AllRows())));
    }
}

// Every device that Weft accepts has 32 KiB of shared memory; the sizes of real GPUs.
TEST(VulkanAttentionMatrix, WorkgroupsFitManyGpus) {
    gpu::Description gpu;
    for (const auto& [bytes, subgroup, most] :
         {std::tuple{32 << 10, 8, 256}, {48 << 10, 32, 1024}, {64 << 10, 64, 1024}}) {
        gpu.shared_bytes = static_cast<uint32_t>(bytes);
        gpu.subgroup = static_cast<uint32_t>(subgroup);
        gpu.most_invocations = static_cast<uint32_t>(most);
        for (const auto& [keys, values, first] : {std::tuple{64, 64, 64},
                                                  {80, 80, 80},
                                                  {128, 128, 128},
                                                  {192, 128, 192},
                                                  {256, 256, 256},
                                                  {576, 512, 512}}) {
            const AttentionSizes sizes{1, 1, keys, values, first};
            const auto large = FragmentsOf(gpu, sizes, 64, false);
            ASSERT_TRUE(large.has_value()) << bytes << " " << keys;
            EXPECT_LE(large->Invocations(gpu.subgroup), gpu.most_invocations);
            const auto small = FragmentsOf(gpu, sizes, 4, false);
            ASSERT_TRUE(small.has_value());
            EXPECT_EQ(small->keys, large->keys);  // a row's bits depend on it
            EXPECT_EQ(small->pairs, 16);
        }
    }
    gpu.shared_bytes = 48 << 10, gpu.subgroup = 32, gpu.most_invocations = 1024;
    const auto usual = FragmentsOf(gpu, {2, 2, 128, 128, 128}, 64, false);
    EXPECT_EQ(usual->pairs, 64);
    EXPECT_EQ(usual->keys, 64);
    EXPECT_TRUE(usual->held);
    // On AMD's GPUs, a SIMD has four subgroups: four workgroups in 128 KiB.
    gpu.shared_bytes = 64 << 10, gpu.subgroup = 64;
    for (const int64_t dims : {64, 128}) {
        const auto small = FragmentsOf(gpu, {2, 2, dims, dims, dims}, 64, false);
        EXPECT_EQ(small->pairs, 64);
        EXPECT_EQ(small->keys, 32);
        EXPECT_EQ(small->Invocations(64), 256u);
        EXPECT_TRUE(small->held);
    }
    // (Float32 in either cache.)
    EXPECT_FALSE(FragmentsOf(gpu, {0, 2, 128, 128, 128}, 64, false).has_value());
    EXPECT_FALSE(FragmentsOf(gpu, {2, 0, 128, 128, 128}, 64, false).has_value());
}

}  // namespace
}  // namespace weft::backend::on_gpu
