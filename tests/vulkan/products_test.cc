// Products, table look-ups and adapters on a GPU: against sums in float64, over all weight types.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "support/nightly.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/multiply.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

// A float32 sum of `count` products in any order is off by at most count * 2^-24 times the sum of
// their magnitudes; twice that includes the products' own roundings and flushed denormals.
double SumBound(int64_t count, double sizes) {
    return 2 * static_cast<double>(count) * 0x1p-24 * sizes + static_cast<double>(count) * 0x1p-126;
}

struct ExactProduct {
    double value = 0, sizes = 0;
};
ExactProduct Dot(std::span<const float> w, std::span<const float> x) {
    ExactProduct out;
    for (size_t i = 0; i < w.size(); ++i) {
        const double product = static_cast<double>(w[i]) * static_cast<double>(x[i]);
        out.value += product;
        out.sizes += std::fabs(product);
    }
    return out;
}

// y [rows, n] of x [rows, cols], with a bias that may be empty.
void ExpectProducts(const RandomWeight& weight, const std::vector<float>& x,
                    const std::vector<float>& bias, const std::vector<float>& y) {
    const auto cols = static_cast<size_t>(weight.cols), n = static_cast<size_t>(weight.rows);
    ASSERT_EQ(y.size() * cols, x.size() * n);
    for (size_t t = 0; t < x.size() / cols; ++t) {
        for (size_t r = 0; r < n; ++r) {
            ExactProduct exact =
                Dot(weight.Row(static_cast<int64_t>(r)), std::span(x).subspan(t * cols, cols));
            if (!bias.empty()) {
                exact.value += static_cast<double>(bias[r]);
                exact.sizes += std::fabs(static_cast<double>(bias[r]));
            }
            const double error = std::fabs(static_cast<double>(y[t * n + r]) - exact.value);
            ASSERT_TRUE(error <= SumBound(weight.cols + 1, exact.sizes))
                << Info(weight.dtype).name << " " << n << " x " << cols << ": row " << t
                << " output " << r << " is " << y[t * n + r] << ", exact " << exact.value;
        }
    }
}

std::vector<float> Multiplied(const std::shared_ptr<gpu::Device>& device,
                              const RandomWeight& weight, const std::vector<float>& x,
                              const std::vector<float>& bias, bool reference = false,
                              std::optional<gpu::Kind> kind = std::nullopt) {
    BenchEmitter e = test::EmitterFor(device, weight, x);
    e.set_reference(reference);
    if (kind) e.set_kind(*kind);
    return test::Multiply(e, weight, x, bias);
}

int64_t LeastCols(DType dtype) {
    return Info(dtype).block_elements == 1 ? 37 : Info(dtype).block_elements;
}

void ExpectShape(const std::shared_ptr<gpu::Device>& device, DType dtype, int64_t rows, int64_t n,
                 int64_t cols, uint32_t seed) {
    const RandomWeight weight(dtype, n, cols, seed);
    const std::vector<float> x = RandomValues(rows * cols, seed);
    const std::vector<float> bias =
        seed % 2 == 0 ? std::vector<float>{} : RandomValues(n, seed + 1);
    ExpectProducts(weight, x, bias, Multiplied(device, weight, x, bias));
}

// Kernels of each type, all of them in the nightly run (compiling kernels takes most of the time)
// ...
TEST(VulkanProducts, AllTypes) {
    WEFT_VULKAN(device);
    uint32_t seed = 0;
    for (const DType dtype : test::TakenTypes()) {
        for (const int64_t rows : {1, 5, 9}) {
            if (!weft::test::InTurn(++seed, 4)) continue;
            ExpectShape(device, dtype, rows, 33, LeastCols(dtype) * (1 + seed % 3), seed);
        }
        if (HasFailure()) return;
    }
}

// ... and all shapes with some types.
TEST(VulkanProducts, AllShapes) {
    WEFT_VULKAN(device);
    uint32_t seed = 0;
    for (const DType dtype : {DType::kF32, DType::kQ4_0, DType::kQ6_K}) {
        for (const int64_t rows : {1, 2, 5, 8, 9, 40, 70}) {
            for (const int64_t n : {1, 7, 33, 130}) {
                ++seed;
                ExpectShape(device, dtype, rows, n, LeastCols(dtype) * (1 + seed % 3), seed);
            }
        }
        if (HasFailure()) return;
    }
}

// A weight of many rows, so that a workgroup takes several; the last workgroup has fewer.
TEST(VulkanProducts, ManyRowsOfTheWeight) {
    WEFT_VULKAN(device);
    ExpectShape(device, DType::kQ4_0, 1, 2049, 64, 1);
    ExpectShape(device, DType::kF32, 1, 2051, 37, 2);
}

// Many columns, so that an invocation has several units.
TEST(VulkanProducts, ManyColumns) {
    WEFT_VULKAN(device);
    uint32_t seed = 100;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
        const int64_t cols = Info(dtype).block_elements == 1 ? 4099 : 4352;
        const RandomWeight weight(dtype, 5, cols, ++seed);
        for (const int64_t rows : {5, 9}) {
            const std::vector<float> x = RandomValues(rows * cols, seed);
            ExpectProducts(weight, x, {}, Multiplied(device, weight, x, {}));
        }
    }
}

// A row has the same bits alone and among others: in steps of up to 8 rows, in the reference with
// any number of rows, and in larger steps compared with each other.
TEST(VulkanProducts, RowsDoNotDependOnOthers) {
    WEFT_VULKAN(device);
    for (const DType dtype : {DType::kF16, DType::kQ4_0, DType::kQ8_0, DType::kQ6_K}) {
        const int64_t cols = Info(dtype).block_elements == 1 ? 1048 : 1280, n = 9;
        const RandomWeight weight(dtype, n, cols, 8);
        const std::vector<float> x = RandomValues(70 * cols, 9);
        const auto rows_of = [&](int64_t begin, int64_t count, bool reference) {
            const std::vector<float> part(x.begin() + begin * cols,
                                          x.begin() + (begin + count) * cols);
            return Multiplied(device, weight, part, {}, reference);
        };
        const std::vector<float> all = rows_of(0, 70, true), large = rows_of(0, 70, false);
        const auto expect = [&](const std::vector<float>& whole, int64_t begin, int64_t count,
                                bool reference) {
            const std::vector<float> part = rows_of(begin, count, reference);
            for (size_t i = 0; i < part.size(); ++i) {
                ASSERT_EQ(std::bit_cast<uint32_t>(part[i]),
                          std::bit_cast<uint32_t>(whole[static_cast<size_t>(begin * n) + i]))
                    << Info(dtype).name << " rows " << begin << " + " << count;
            }
        };
        for (const int64_t count : {1, 2, 3, 8}) expect(all, 11, count, false);
        expect(all, 3, 20, true);
        for (const int64_t count : {9, 33}) expect(large, 11, count, false);
        if (HasFailure()) return;
    }
}

// With and without passing x through shared memory.
TEST(VulkanProducts, AllKindsOfDevicesGiveTheSameBits) {
    WEFT_VULKAN(device);
    // (For float16, a unit is two quads of x: the second may be beyond the row.)
    size_t turn = 0;
    for (const auto& [dtype, cols] : {std::pair<DType, int64_t>{DType::kF32, 1051},
                                      {DType::kF16, 1051},
                                      {DType::kBF16, 20},
                                      {DType::kQ4_0, 2144},
                                      {DType::kQ8_0, 2144}}) {
        if (!weft::test::InTurn(++turn, 2)) continue;
        const RandomWeight weight(dtype, 5, cols, 8);
        const std::vector<float> x = RandomValues(8 * cols, 9);
        const auto of = [&](gpu::Kind kind) {
            return Multiplied(device, weight, x, {}, false, kind);
        };
        const std::vector<float> cpu = of(gpu::Kind::kCpu), card = of(gpu::Kind::kDiscrete);
        ASSERT_EQ(std::memcmp(cpu.data(), card.data(), cpu.size() * sizeof(float)), 0)
            << Info(dtype).name;
        ExpectProducts(weight, x, {}, card);
    }
}

TEST(VulkanProducts, EmbeddingGivesTheFloatsOfTheFile) {
    WEFT_VULKAN(device);
    uint32_t seed = 30;
    for (const DType dtype : test::TakenTypes()) {
        const int64_t cols = LeastCols(dtype) * 3;
        const RandomWeight table(dtype, 11, cols, ++seed);
        const std::vector<int32_t> tokens = {100, 110, 99, 111, 104, 100, -1};
        BenchEmitter e(device, StepShape{.rows = 7});
        const ValueId ids = e.AddInts({kTokens}, tokens);
        const ValueId w = e.AddWeight(dtype, {11, cols}, table.blocks);
        const ValueId y = e.AddFloats({kTokens, cols});
        ASSERT_TRUE(e.Lower(program::Embedding{.first_row = 100}, {ids, w}, {y}).ok());
        const Status run = e.Run();
        ASSERT_TRUE(run.ok()) << run.error().message;
        const std::vector<float> got = e.Floats(y);
        for (size_t i = 0; i < got.size(); ++i) {
            const int64_t row = tokens[i / static_cast<size_t>(cols)] - 100;
            const bool held = row >= 0 && row < 11;
            const float expected = held ? table.Row(row)[i % static_cast<size_t>(cols)] : 0.0f;
            // Devices may flush denormals.
            const bool flushed = std::fabs(expected) < 0x1p-126f && got[i] == 0;
            ASSERT_TRUE(flushed ||
                        std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected))
                << Info(dtype).name << " element " << i << ": " << got[i] << ", not " << expected;
        }
    }
}

TEST(VulkanProducts, AMatrixForEachHead) {
    WEFT_VULKAN(device);
    uint32_t seed = 50;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
        for (const int64_t rows : {1, 3, 8, 21}) {
            const int64_t heads = 3, n = 10, cols = LeastCols(dtype);
            if (!weft::test::InTurn(++seed, 3)) continue;
            const RandomWeight weight(dtype, heads * n, cols, seed);
            const std::vector<float> x = RandomValues(rows * heads * cols, seed);
            BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
            const ValueId in = e.AddFloats({kTokens, heads * cols}, x);
            const ValueId w = e.AddWeight(dtype, {heads, n, cols}, weight.blocks);
            const ValueId y = e.AddFloats({kTokens, heads * n});
            ASSERT_TRUE(e.Lower(program::HeadMatMul{}, {in, w}, {y}).ok());
            const Status run = e.Run();
            ASSERT_TRUE(run.ok()) << run.error().message;
            const std::vector<float> got = e.Floats(y);
            for (size_t i = 0; i < got.size(); ++i) {
                const size_t t = i / static_cast<size_t>(heads * n);
                const size_t row = i % static_cast<size_t>(heads * n);
                const size_t head = row / static_cast<size_t>(n);
                const auto columns = static_cast<size_t>(cols);
                const ExactProduct exact =
                    Dot(weight.Row(static_cast<int64_t>(row)),
                        std::span(x).subspan((t * static_cast<size_t>(heads) + head) * columns,
                                             columns));
                ASSERT_TRUE(std::fabs(static_cast<double>(got[i]) - exact.value) <=
                            SumBound(cols, exact.sizes))
                    << Info(dtype).name << " element " << i;
            }
        }
    }
}

// Two adapters of different ranks and types, in a step of four sequences: one without an adapter,
// one whose adapter has no pair here.
TEST(VulkanProducts, AdaptersChangeOnlyTheirRows) {
    WEFT_VULKAN(device);
    const int64_t cols = 43, n = 70, rows = 9;
    struct Pair {
        RandomWeight a, b;
    };
    const std::vector<Pair> pairs = {
        {{DType::kF32, 5, cols, 1}, {DType::kF32, n, 5, 3}},
        {{DType::kBF16, 12, cols, 5}, {DType::kBF16, n, 12, 7}},
    };
    const std::vector<int32_t> adapters = {1, 4};
    const std::vector<int32_t> of_row = {4, 4, 0, 1, 1, 1, 2, 2, 2};
    const std::vector<float> x = RandomValues(rows * cols, 1), before = RandomValues(rows * n, 2);
    BenchEmitter e(device, StepShape{.rows = 9, .adapted = true});
    e.SetStep({.sequences = {{0, 2, 0, 0, 4}, {2, 1, 0, 0, 0}, {3, 3, 0, 0, 1}, {6, 3, 0, 0, 2}}});
    std::vector<ValueId> inputs = {e.AddFloats({kTokens, cols}, x)};
    for (const Pair& pair : pairs) {
        inputs.push_back(e.AddWeight(pair.a.dtype, {pair.a.rows, cols}, pair.a.blocks));
        inputs.push_back(e.AddWeight(pair.b.dtype, {n, pair.b.cols}, pair.b.blocks));
    }
    const ValueId y = e.AddFloats({kTokens, n}, before);
    inputs.push_back(y);
    ASSERT_TRUE(e.Lower(program::Adapt{.adapters = adapters, .parts = {3, 3}}, inputs, {y}).ok());
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> got = e.Floats(y);
    for (int64_t t = 0; t < rows; ++t) {
        for (int64_t c = 0; c < n; ++c) {
            const auto i = static_cast<size_t>(t * n + c);
            const int32_t adapter = of_row[static_cast<size_t>(t)];
            if (adapter != 1 && adapter != 4) {
                ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(before[i]));
                continue;
            }
            const Pair& pair = pairs[adapter == 1 ? 0 : 1];
            double sum = static_cast<double>(before[i]), sizes = std::fabs(sum);
            for (int64_t r = 0; r < pair.a.rows; ++r) {
                const ExactProduct u = Dot(
                    pair.a.Row(r),
                    std::span(x).subspan(static_cast<size_t>(t * cols), static_cast<size_t>(cols)));
                const double b = static_cast<double>(pair.b.Row(c)[static_cast<size_t>(r)]);
                sum += u.value * b;
                sizes += u.sizes * std::fabs(b);
            }
            ASSERT_TRUE(std::fabs(static_cast<double>(got[i]) - sum) <=
                        SumBound(cols + pair.a.rows + 1, sizes))
                << "row " << t << " column " << c;
        }
    }
}

TEST(VulkanProducts, TypesWithoutAKernelAreRefused) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 1});
    const ValueId x = e.AddFloats({kTokens, 256});
    const ValueId y = e.AddFloats({kTokens, 4});
    const ValueId w = e.AddWeight(DType::kQ4_0, {4, 256}, std::vector<std::byte>(4 * 8 * 18));
    e.SetWeightType(w, DType::kF64);  // a type that no file has
    const Status status = e.Lower(program::MatMul{}, {x, w}, {y});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find("F64"), std::string::npos);
}

}  // namespace
}  // namespace weft::backend::on_gpu
