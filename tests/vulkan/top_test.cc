// The largest logits of a row on a GPU against TopK: the same values and indices, in order.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/top.h"
#include "support/kernel_levels.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::test::Random;
using program::ValueId;
using test::BenchEmitter;

std::vector<Candidate> TopOnGpu(const std::shared_ptr<gpu::Device>& device,
                                const std::vector<float>& values, int64_t columns, int64_t count) {
    BenchEmitter e(device, {.rows = 1, .positions = 64});
    const ValueId row = e.AddFloats({static_cast<int64_t>(values.size())}, values);
    const ValueId out = e.AddFloats({2 * count});
    const Status lowered =
        LowerTop(e, {e.Address(row), 1, columns, columns}, count, e.Address(out));
    EXPECT_TRUE(lowered.ok()) << lowered.error().message;
    const Status ran = e.Run();
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    std::vector<Candidate> best(static_cast<size_t>(count));
    std::memcpy(static_cast<void*>(best.data()), e.Floats(out).data(),
                best.size() * sizeof(Candidate));
    return best;
}

void ExpectTop(const std::shared_ptr<gpu::Device>& device, const std::vector<float>& values,
               int64_t columns, int64_t count) {
    const std::vector<Candidate> got = TopOnGpu(device, values, columns, count);
    std::vector<Candidate> expected(static_cast<size_t>(count));
    TopK({values.data(), static_cast<size_t>(columns)}, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(got[i].index, expected[i].index) << i << " of " << count << " of " << columns;
        ASSERT_EQ(got[i].value, expected[i].value) << i << " of " << count << " of " << columns;
    }
}

TEST(VulkanTop, EqualsTopOf) {
    WEFT_VULKAN(device);
    Random random(1);
    for (const int64_t columns : {1, 2, 255, 2048, 2049, 5000, 49152, 151936}) {
        const std::vector<float> values = random.Normals(columns + 3, 4);
        for (const int64_t count : {1, 2, 40, 256}) {
            if (count > columns || (columns > 100000 && count == 2)) continue;
            ExpectTop(device, values, columns, count);
            if (HasFatalFailure()) return;
        }
    }
}

// Few different values, among them both zeros and infinities, on both sides of block boundaries.
TEST(VulkanTop, TheLowestIndexOfEqualValues) {
    WEFT_VULKAN(device);
    Random random(2);
    for (const int64_t columns : {40, 4097}) {
        std::vector<float> values;
        for (int64_t i = 0; i < columns; ++i) {
            values.push_back(random.Pick({0.0f, -0.0f, 1.0f, -1.0f, -INFINITY}));
        }
        for (const int64_t count : {1, 40}) ExpectTop(device, values, columns, count);
        std::ranges::fill(values, -INFINITY);
        for (const int64_t count : {1, 40}) ExpectTop(device, values, columns, count);
        values[static_cast<size_t>(columns) - 1] = INFINITY;
        for (const int64_t count : {1, 40}) ExpectTop(device, values, columns, count);
    }
}

TEST(VulkanTop, NaNComesFirst) {
    WEFT_VULKAN(device);
    Random random(3);
    for (const int64_t columns : {40, 4097}) {
        for (const int64_t at : {int64_t{0}, columns / 2, columns - 1}) {
            std::vector<float> values = random.Normals(columns);
            values[static_cast<size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
            values[static_cast<size_t>(columns / 3)] = INFINITY;
            for (const int64_t count : {1, 7}) {
                EXPECT_TRUE(std::isnan(TopOnGpu(device, values, columns, count)[0].value));
            }
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
