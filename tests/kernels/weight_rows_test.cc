// Packed weights are read back as the rows of the file.
#include "kernels/weight_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "support/weight_products.h"

namespace weft::kernels {
namespace {

using weft::test::TestedCpuLevels;

TEST(WeightRows, AreThoseOfTheFile) {
    for (const CpuLevel level : {CpuLevel::kReference, TestedCpuLevels().back()}) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(5);
        int types = 0;
        for (const DType dtype : test::WeightTypes()) {
            if (!CanReadBack(kernels, dtype)) continue;
            ++types;
            const int64_t rows = 37, cols = 2 * Info(dtype).block_elements;
            const test::Weight weight(random, dtype, rows, cols);
            const test::Packed packed(kernels, weight);
            const int64_t row_bytes = RowBytes(dtype, cols), stride = row_bytes + 3;
            for (const auto& [begin, count] : {std::pair{0, 37}, {5, 1}, {15, 18}, {36, 1}}) {
                std::vector<std::byte> got(static_cast<size_t>(count * stride));
                ReadBack(kernels, packed.matrix, begin, count, got.data(), stride);
                for (int64_t i = 0; i < count; ++i) {
                    EXPECT_TRUE(std::equal(got.begin() + i * stride,
                                           got.begin() + i * stride + row_bytes,
                                           weight.blocks.begin() + (begin + i) * row_bytes))
                        << Info(dtype).name << " row " << begin + i;
                }
            }
        }
        EXPECT_GT(types, 20);
    }
    EXPECT_FALSE(CanReadBack(KernelsFor(TestedCpuLevels().back()), DType::kTQ1_0));
}

}  // namespace
}  // namespace weft::kernels
