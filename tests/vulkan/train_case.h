// Shared by tests of training's Vulkan kernels: values of any float type at any address, and errors
// against float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/kernel_levels.h"
#include "tensor/half.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu::test {

using kernels::test::kUlp;
using kernels::test::Random;

using Doubles = std::vector<double>;

inline StepShape TrainShape(int32_t rows, int32_t outputs = 1) {
    return {.rows = rows, .outputs = outputs, .positions = 64};
}
inline float RoundedTo(DType dtype, float x) {
    if (dtype == DType::kBF16) return BF16ToF32(F32ToBF16(x));
    return dtype == DType::kF16 ? F16ToF32(F32ToF16(x)) : x;
}
inline std::vector<float> RoundedTo(DType dtype, std::vector<float> values) {
    for (float& x : values) x = RoundedTo(dtype, x);
    return values;
}
// The relative error of storing x; float16 has subnormals below 2^-14.
inline double StoreError(DType dtype, double x) {
    if (dtype == DType::kBF16) return 0x1p-8 * std::fabs(x);
    return dtype == DType::kF16 ? 0x1p-11 * std::fabs(x) + 0x1p-25 : 0;
}

// error(i): the error bound of the kernel's float32 result before it is stored.
inline void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected,
                       DType dtype, const std::function<double(size_t)>& error,
                       const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        const double own = error(i);
        const double bound = own + StoreError(dtype, std::fabs(expected[i]) + own);
        const double off = std::fabs(double{got[i]} - expected[i]);
        ASSERT_FALSE(!(off <= bound)) << what << ", element " << i << ": " << got[i]
                                      << ", expected " << expected[i] << ", bound " << bound;
    }
}

// An emitter whose values are elements of larger ones, `skip` elements after a multiple of 256
// bytes: so the same tests cover kernels that read four elements at once, and kernels that can't.
class TrainEmitter : public BenchEmitter {
  public:
    TrainEmitter(const std::shared_ptr<gpu::Device>& device, StepShape shape, int64_t skip = 0)
        : BenchEmitter(device, shape), skip_(skip) {
        set_trains(true);
    }

    // Adds a value with these contents, rounded; without contents: all NaN.
    ValueId Place(const program::Shape& shape_of, DType dtype,
                  const std::vector<float>& contents = {}) {
        const int64_t count = shape_of.Elements(shape().rows, shape().outputs);
        std::vector<float> all(static_cast<size_t>(count + 2 * skip_),
                               std::numeric_limits<float>::quiet_NaN());
        std::ranges::copy(contents, all.begin() + skip_);
        const ValueId base = AddRounded({count + 2 * skip_}, dtype, all);
        return AddView(shape_of, base, skip_);
    }
    std::vector<float> Read(ValueId id) const {
        const program::Value& value = program().value(id);
        const std::vector<float> all = Widened(value.base);
        const auto count = value.shape.Elements(shape().rows, shape().outputs);
        return {all.begin() + value.base_begin, all.begin() + value.base_begin + count};
    }

    // Lowers like an executor, and runs.
    template <typename Attributes>
    Status Do(const Attributes& attributes, std::vector<ValueId> inputs,
              std::vector<ValueId> outputs) {
        WEFT_TRY(LowerNumber(AddOp(attributes, std::move(inputs), std::move(outputs))));
        return Run();
    }

  private:
    int64_t skip_;
};
#define EXPECT_DONE(status)                             \
    do {                                                \
        const Status done = (status);                   \
        ASSERT_TRUE(done.ok()) << done.error().message; \
    } while (false)

inline constexpr std::array<DType, 3> kFloatTypes = {DType::kF32, DType::kBF16, DType::kF16};
inline std::string_view NameOf(DType dtype) {
    return Info(dtype).name;
}

}  // namespace weft::backend::on_gpu::test
