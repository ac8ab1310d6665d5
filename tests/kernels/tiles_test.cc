// Quantized weights times tiles of every number of tokens: weights and activations whose codes are
// the extremes of their types, rows and columns that do not fill a vector. Sets that multiply
// several tokens at once have the bits of one token, and of all other sets.
#include <algorithm>

#include "support/weight_products.h"

namespace weft::kernels {
namespace {

using test::MatmulExpectNear, weft::test::TestedCpuLevels, test::MatmulRounded, test::Multiply,
    test::Packed, test::RandomFloats, test::Weight, test::WeightTypes;

// Positions of a block's float scales, whose extremes are not numbers: at its front (a float16 by
// default) and at its back.
struct Scales {
    DType dtype;
    size_t front, back;
};
constexpr Scales kScales[] = {{DType::kMXFP4, 1, 0}, {DType::kQ4_1, 4, 0}, {DType::kQ5_1, 4, 0},
                              {DType::kW4, 4, 0},    {DType::kW8, 4, 0},   {DType::kNVFP4, 8, 0},
                              {DType::kQ4_K, 4, 0},  {DType::kQ5_K, 4, 0}, {DType::kQ2_K, 0, 4},
                              {DType::kQ3_K, 0, 2},  {DType::kQ6_K, 0, 2}, {DType::kTQ1_0, 0, 2},
                              {DType::kTQ2_0, 0, 2}, {DType::kIQ1_M, 0, 8}};
Scales ScalesOf(DType dtype) {
    const auto found = std::ranges::find(kScales, dtype, &Scales::dtype);
    return found != std::end(kScales) ? *found : Scales{dtype, 2, 0};
}

constexpr int64_t kTileRows = 37, kMostTokens = 13;

// All codes are `low`; or every other byte `high`.
Weight ExtremeWeight(DType dtype, int low, int high, int64_t rows = kTileRows, int64_t blocks = 3) {
    std::mt19937 random(21);
    Weight weight(random, dtype, rows, blocks * Info(dtype).block_elements);
    const Scales scales = ScalesOf(dtype);
    const auto size = static_cast<size_t>(Info(dtype).block_bytes);
    for (size_t block = 0; block < weight.blocks.size(); block += size) {
        for (size_t i = scales.front; i < size - scales.back; ++i) {
            weight.blocks[block + i] = static_cast<std::byte>(i % 2 == 0 ? low : high);
        }
    }
    DequantizeRow(dtype, weight.blocks, weight.floats);
    return weight;
}

// Tokens of the largest codes, with one sign and with both; one of zeros; the others random.
std::vector<float> ExtremeActivations(int64_t cols) {
    std::mt19937 random(22);
    std::vector<float> x = RandomFloats(random, kMostTokens * cols);
    for (int64_t i = 0; i < cols; ++i) {
        const auto at = [&](int64_t token) -> float& {
            return x[static_cast<size_t>(token * cols + i)];
        };
        at(1) = 1.5f;
        at(2) = -1.5f;
        at(4) = i % 2 == 0 ? 3.0f : -3.0f;
        at(5) = 0;
    }
    return x;
}

// Every number of tokens, on every level, whole and in segments.
void CheckTiles(const Weight& weight, const std::vector<float>& x) {
    std::vector<float> first;  // of the first level
    for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level == CpuLevel::kReference) continue;
        const Kernels& kernels = KernelsFor(level);
        const Packed packed(kernels, weight);
        for (const int64_t segment : {0, 64}) {
            std::vector<float> one;
            for (int64_t t = 0; t < kMostTokens; ++t) {
                const auto begin = x.begin() + t * weight.cols;
                const std::vector<float> row(begin, begin + weight.cols);
                const auto y = Multiply(kernels, packed, row, 1, 1, nullptr, segment);
                one.insert(one.end(), y.begin(), y.end());
            }
            if (segment == 0) {
                MatmulExpectNear(weight, MatmulRounded(x, kernels.activation_format(weight.dtype)),
                                 kMostTokens, one);
                if (first.empty()) first = one;
                ASSERT_EQ(first, one) << CpuLevelName(level) << " " << Info(weight.dtype).name;
            }
            for (int64_t tokens = 2; tokens <= kMostTokens; ++tokens) {
                const std::vector<float> some(x.begin(), x.begin() + tokens * weight.cols);
                const std::vector<float> expected(one.begin(), one.begin() + tokens * kTileRows);
                ASSERT_EQ(expected, Multiply(kernels, packed, some, tokens,
                                             static_cast<int>(tokens % 3) + 1, nullptr, segment))
                    << CpuLevelName(level) << " " << Info(weight.dtype).name << ", " << tokens
                    << " tokens, segments of " << segment;
            }
        }
    }
}

std::vector<DType> QuantizedTypes() {
    std::vector<DType> types = WeightTypes();
    std::erase_if(types, [](DType dtype) { return !HasIntegerCodes(dtype); });
    return types;
}

TEST(Tiles, RandomWeights) {
    std::mt19937 random(20);
    for (const DType dtype : QuantizedTypes()) {
        const Weight weight(random, dtype, kTileRows, 3 * Info(dtype).block_elements);
        CheckTiles(weight, ExtremeActivations(weight.cols));
        if (HasFatalFailure()) return;
    }
}

constexpr int kBytes[][2] = {{0, 0}, {255, 255}, {128, 128}, {127, 127}, {128, 127}, {0, 255}};

TEST(Tiles, ExtremeCodes) {
    for (const DType dtype : QuantizedTypes()) {
        for (const auto& [low, high] : kBytes) {
            const Weight weight = ExtremeWeight(dtype, low, high);
            CheckTiles(weight, ExtremeActivations(weight.cols));
            if (HasFatalFailure()) {
                FAIL() << "codes of bytes " << low << " and " << high;
            }
        }
    }
}

// All levels under test give the same bits for one strip and one block: tiles of one to four
// tokens, a second tile, and segments of a part of a block and of a whole block.
void CheckLevels(const Weight& weight) {
    const std::vector<float> x = ExtremeActivations(weight.cols);
    for (int64_t tokens = 1; tokens <= 5; ++tokens) {
        const std::vector<float> some(x.begin(), x.begin() + tokens * weight.cols);
        for (const int64_t segment : {0, 64, 256}) {
            std::vector<float> first;
            for (const CpuLevel level : TestedCpuLevels()) {
                if (level == CpuLevel::kReference) continue;
                const Kernels& kernels = KernelsFor(level);
                const Packed packed(kernels, weight);
                const auto y = Multiply(kernels, packed, some, tokens, 1, nullptr, segment);
                if (first.empty()) first = y;
                ASSERT_EQ(first, y) << CpuLevelName(level) << " " << Info(weight.dtype).name << ", "
                                    << tokens << " tokens, segments of " << segment;
            }
        }
    }
}

TEST(Tiles, EveryLevelUnderTestHasTheSameBits) {
    std::mt19937 random(23);
    for (const DType dtype : QuantizedTypes()) {
        CheckLevels(Weight(random, dtype, kStripRows, Info(dtype).block_elements));
        for (const auto& [low, high] : kBytes) {
            CheckLevels(ExtremeWeight(dtype, low, high, kStripRows, 1));
            if (HasFatalFailure()) FAIL() << "codes of bytes " << low << " and " << high;
        }
    }
}

}  // namespace
}  // namespace weft::kernels
