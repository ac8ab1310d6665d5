// Two products and the op that gates one by the other in one kernel: the bits of the three ops one
// by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/lower/products.h"
#include "support/nightly.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh,
                                       Activation::kClampedSilu};

// Experts: rows choose `used` of `all`; the `held` experts from `first` are here.
struct GluCase {
    DType dtype = DType::kF32;
    int64_t rows = 1, n = 33, cols = 64;
    Activation activation = Activation::kSilu;
    bool bias = false, integer = false;
    int64_t all = 0, used = 0, first = 0, held = 0;
    // If set, the type of the up weight: the products are not fused.
    std::optional<DType> up_type{};
};

// The ops of a case, lowered one by one.
class GluOps {
  public:
    GluOps(const std::shared_ptr<gpu::Device>& device, const GluCase& c, uint32_t seed)
        : c_(c), e_(device, StepShape{.rows = static_cast<int32_t>(c.rows)}) {
        e_.set_arithmetic({.integer = c.integer});
        x_ = e_.AddFloats({kTokens, c.cols}, RandomValues(c.rows * c.cols, seed));
        if (c.all > 0) ids_ = e_.AddInts({kTokens, c.used}, Ids());
        const ValueId gate = Product(c.dtype, seed + 1);
        const ValueId up = Product(c.up_type.value_or(c.dtype), seed + 2);
        gated_ = e_.AddFloats(RowShape());
        EXPECT_TRUE(e_.Lower(program::Glu{c.activation}, {gate, up}, {gated_}).ok());
        parts_ = {gate, up};
    }
    // The results of the separate ops and of the fused kernel; `dispatches` gets the latter's
    // count.
    std::vector<float> OneByOne() { return Run(); }
    std::vector<float> AsOne(size_t* dispatches) {
        for (const ValueId id : {parts_[0], parts_[1], gated_}) e_.Poison(id);
        const bool apart = c_.up_type.has_value();
        if (apart) {
            EXPECT_TRUE(e_.LowerNumber(0).ok());
        }
        const Status lowered =
            apart ? LowerRun(e_, {GluRun{.up = 1, .glu = 2}, {1, 2}})
                  : LowerRun(e_, {GluRun{.gate = 0, .up = 1, .glu = 2}, {0, 1, 2}});
        EXPECT_TRUE(lowered.ok()) << lowered.error().message;
        *dispatches = e_.dispatch_count();
        return Run();
    }
    bool WroteTheProducts() {
        const std::vector<float> up = e_.Floats(parts_[1]);
        return std::ranges::any_of(up, [](float value) { return !std::isnan(value); });
    }
    // Whether this rank holds the expert of an element's slot; other slots are not written.
    bool IsHeld(size_t element) const {
        if (c_.all == 0) return true;
        const int64_t expert = Ids()[element / static_cast<size_t>(c_.n)] - c_.first;
        return expert >= 0 && expert < c_.held;
    }

  private:
    program::Shape RowShape() const {
        return c_.all > 0 ? program::Shape{kTokens, c_.used, c_.n} : program::Shape{kTokens, c_.n};
    }
    std::vector<int32_t> Ids() const {
        std::vector<int32_t> ids;
        for (int64_t i = 0; i < c_.rows * c_.used; ++i) {
            ids.push_back(static_cast<int32_t>((i % c_.used + 3 * (i / c_.used)) % c_.all));
        }
        return ids;
    }
    ValueId Product(DType dtype, uint32_t seed) {
        const int64_t matrices = c_.all > 0 ? c_.held : 1;
        const RandomWeight weight(dtype, matrices * c_.n, c_.cols, seed);
        const std::vector<float> bias = RandomValues(matrices * c_.n, seed);
        const ValueId y = e_.AddFloats(RowShape());
        if (c_.all > 0) {
            std::vector<ValueId> inputs = {
                x_, ids_, e_.AddWeight(dtype, {matrices, c_.n, c_.cols}, weight.blocks)};
            if (c_.bias) inputs.push_back(e_.AddFloats({matrices, 1, c_.n}, bias));
            const program::ExpertMatMul op{.first_expert = c_.first};
            EXPECT_TRUE(e_.Lower(op, std::move(inputs), {y}).ok());
            return y;
        }
        std::vector<ValueId> inputs = {x_, e_.AddWeight(dtype, {c_.n, c_.cols}, weight.blocks)};
        if (c_.bias) inputs.push_back(e_.AddVector(bias));
        EXPECT_TRUE(e_.Lower(program::MatMul{}, std::move(inputs), {y}).ok());
        return y;
    }
    std::vector<float> Run() {
        const Status run = e_.Run();
        EXPECT_TRUE(run.ok()) << run.error().message;
        return e_.Floats(gated_);
    }

    const GluCase c_;
    BenchEmitter e_;
    ValueId x_ = 0, ids_ = 0, gated_ = 0;
    std::vector<ValueId> parts_;
};

void ExpectBitsOfOps(const std::shared_ptr<gpu::Device>& device, const GluCase& c, uint32_t seed) {
    SCOPED_TRACE(fmt::format("{}: {} rows, {} x {}, activation {}{}{}", Info(c.dtype).name, c.rows,
                             c.n, c.cols, static_cast<int>(c.activation), c.bias ? ", bias" : "",
                             c.integer ? ", int8" : ""));
    GluOps ops(device, c, seed);
    const std::vector<float> want = ops.OneByOne();
    size_t dispatches = 0;
    const std::vector<float> got = ops.AsOne(&dispatches);
    const bool few = c.rows <= kMatvecRows;
    EXPECT_EQ(ops.WroteTheProducts(), !few);
    EXPECT_TRUE(!few || dispatches == (c.up_type ? 2u : 1u)) << dispatches;
    ASSERT_EQ(got.size(), want.size());
    size_t numbers = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        if (!ops.IsHeld(i)) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << "element " << i << ": " << got[i] << ", not " << want[i];
        numbers += std::isnan(want[i]) ? 0 : 1;
    }
    EXPECT_GE(numbers, static_cast<size_t>(c.n));
}

// (Compiling kernels takes most of the time; VulkanProducts.AllTypes decodes each type in the daily
// run.)
TEST(VulkanGlu, AllTypes) {
    WEFT_VULKAN(device);
    uint32_t seed = 400;
    const std::vector<DType> types = test::TakenTypes();
    for (size_t i = 0; i < types.size(); ++i) {
        if (!weft::test::InTurn(i, 4)) continue;
        const DType dtype = types[i];
        ++seed;
        const int64_t block = Info(dtype).block_elements;
        GluCase c{dtype};
        c.cols = block == 1 ? 37 : 2 * block;
        c.activation = kActivations[seed % 3];
        c.rows = 1 + seed % 2;
        c.bias = seed % 2 == 0;
        ExpectBitsOfOps(device, c, seed);
        c.integer = HasIntegerCodes(dtype) && device->description().integer_dot;
        if (c.integer) ExpectBitsOfOps(device, c, seed);
        if (HasFailure()) return;
    }
}

TEST(VulkanGlu, AllShapes) {
    WEFT_VULKAN(device);
    uint32_t seed = 500;
    for (const int64_t rows : {1, 2, 3, 8, 9}) {
        for (const Activation activation : kActivations) {
            if (!weft::test::InTurn(++seed, 5)) continue;
            GluCase c{seed % 2 == 0 ? DType::kQ4_0 : DType::kF32, rows};
            c.cols = 32 * (1 + rows);
            c.n = seed % 3 == 0 ? 1 : 65;
            c.activation = activation;
            c.bias = rows % 2 == 0;
            ExpectBitsOfOps(device, c, seed);
        }
    }
    // An odd number of outputs, large enough that a workgroup computes several.
    ExpectBitsOfOps(device, {.dtype = DType::kQ4_0, .n = 4099, .cols = 32}, 600);
}

// Different types: one by one, and in experts.
TEST(VulkanGlu, GateOfAnotherType) {
    WEFT_VULKAN(device);
    uint32_t seed = 650;
    for (const int64_t rows : {1, 3, 8, 9}) {
        GluCase c{++seed % 2 == 0 ? DType::kQ4_K : DType::kF16, rows};
        c.up_type = seed % 3 == 0 ? DType::kF32 : DType::kQ8_0;
        c.cols = 256;
        c.activation = kActivations[seed % 3];
        c.bias = seed % 2 == 0;
        ExpectBitsOfOps(device, c, seed);
        c.all = c.held = 5;
        c.used = 2;
        c.n = 35;
        ExpectBitsOfOps(device, c, seed);
    }
}

TEST(VulkanGlu, Experts) {
    WEFT_VULKAN(device);
    uint32_t seed = 700;
    for (const int64_t rows : {1, 5, 8, 9}) {
        for (const bool bias : {false, true}) {
            GluCase c{++seed % 2 == 0 ? DType::kQ4_K : DType::kQ8_0, rows, 19, 256};
            c.activation = kActivations[seed % 3];
            c.bias = bias;
            c.all = 7;
            c.used = 3;
            ExpectBitsOfOps(
                device,
                [&] {
                    c.held = 7;
                    return c;
                }(),
                seed);
            ExpectBitsOfOps(
                device,
                [&] {
                    c.first = 2;
                    c.held = 4;
                    return c;
                }(),
                seed);
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
