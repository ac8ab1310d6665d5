// Training of experts on a Vulkan device: the six products against sums in float64. Some experts
// get no rows, some are on another rank; the rows of the latter hold NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/dense_elements.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/matrix_of.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

struct ExpertTypes {
    DType activation, weight, gradient;
};

// A sum and its error bound: each term is rounded at most twice in float32 (2^-23); in float16 on
// matrix units, an operand loses 2^-28 of the largest (gemm_matrix.glsl), and hardware may truncate
// when it adds.
struct ExpertTotal {
    double value = 0, sizes = 0, a_sum = 0, b_sum = 0;
    int64_t terms = 0;
    void Add(double a, double b) {
        value += a * b;
        sizes += std::fabs(a * b);
        a_sum += std::fabs(a);
        b_sum += std::fabs(b);
        ++terms;
    }
    double Bound(DType dtype, double largest) const {
        const double sum = static_cast<double>(terms + 4) * 0x1p-22 * sizes +
                           0x1p-28 * largest * (a_sum + b_sum) + 0x1p-120;
        const auto type = dtype == DType::kF32    ? kernels::dense::Element::kF32
                          : dtype == DType::kBF16 ? kernels::dense::Element::kBf16
                                                  : kernels::dense::Element::kF16;
        return sum + kernels::dense::Rounding(type, std::fabs(value) + sum);
    }
};

class TrainedExperts {
  public:
    static constexpr int64_t kUsed = 3, kAll = 7, kFirst = 2, kHeld = 4, kWide = 21, kCols = 37;

    TrainedExperts(std::shared_ptr<gpu::Device> device, int64_t rows, ExpertTypes types,
                   Arithmetic arithmetic)
        : e(std::move(device), StepShape{.rows = static_cast<int32_t>(rows)}),
          types_(types),
          rows_(rows),
          rounds_(arithmetic.compute == DType::kBF16),
          chosen_(Choose(rows)) {
        e.set_arithmetic(arithmetic);
        ids_ = e.AddInts({kTokens, kUsed}, chosen_);
        factors_ = RandomValues(slots(), 11);
        weights_ = e.AddFloats({kTokens, kUsed}, factors_);
        stack_ = Stored(types.weight, RandomValues(kHeld * kWide * kCols, 12));
        for (float& w : stack_) largest_ = std::max(largest_, std::fabs(double{w}));
        w_ = e.AddRounded({kHeld, kWide, kCols}, types.weight, stack_);
    }

    // Expert 3 gets no rows.
    static std::vector<int32_t> Choose(int64_t rows) {
        std::mt19937 random(5);
        std::vector<int32_t> order = {0, 1, 2, 4, 5, 6}, ids;
        for (int64_t t = 0; t < rows; ++t) {
            std::ranges::shuffle(order, random);
            ids.insert(ids.end(), order.begin(), order.begin() + kUsed);
        }
        return ids;
    }
    int64_t slots() const { return rows_ * kUsed; }
    // The matrix index of a slot; -1: on another rank.
    int64_t Matrix(int64_t slot) const {
        const int64_t expert = chosen_[static_cast<size_t>(slot)] - kFirst;
        return expert >= 0 && expert < kHeld ? expert : -1;
    }
    std::vector<float> Stored(DType dtype, std::vector<float> x) {
        const auto type = dtype == DType::kF32    ? kernels::dense::Element::kF32
                          : dtype == DType::kBF16 ? kernels::dense::Element::kBf16
                                                  : kernels::dense::Element::kF16;
        for (float& value : x) {
            value = kernels::dense::Stored(type, value);
            largest_ = std::max(largest_, std::fabs(double{value}));
        }
        return x;
    }
    // Rows [T, n], or [T, K, n] with NaN in the rows of other ranks.
    struct Rows {
        ValueId id;
        std::vector<float> floats;
        int64_t cols;
    };
    Rows AddRows(DType dtype, int64_t cols, bool by_slot, uint32_t seed) {
        const int64_t count = by_slot ? slots() : rows_;
        Rows made{0, Stored(dtype, RandomValues(count * cols, seed)), cols};
        for (int64_t i = 0; by_slot && i < count * cols; ++i) {
            if (Matrix(i / cols) < 0) made.floats[static_cast<size_t>(i)] = NAN;
        }
        made.id = by_slot ? e.AddRounded({kTokens, kUsed, cols}, dtype, made.floats)
                          : e.AddRounded({kTokens, cols}, dtype, made.floats);
        return made;
    }
    // x as a product reads an operand.
    double Taken(float x) const { return rounds_ ? double{BF16ToF32(F32ToBF16(x))} : double{x}; }
    double At(const Rows& x, int64_t row, int64_t col) const {
        return Taken(x.floats[static_cast<size_t>(row * x.cols + col)]);
    }
    double Weight(int64_t matrix, int64_t row, int64_t col) const {
        return Taken(stack_[static_cast<size_t>((matrix * kWide + row) * kCols + col)]);
    }
    double Factor(int64_t slot) const { return double{factors_[static_cast<size_t>(slot)]}; }
    void Expect(const ExpertTotal& want, float got, DType dtype, int64_t row, int64_t col) const {
        EXPECT_TRUE(std::fabs(double{got} - want.value) <= want.Bound(dtype, largest_))
            << "(" << row << ", " << col << ") is " << got << ", not " << want.value;
    }
    template <typename Attributes>
    void Run(const Attributes& attributes, std::vector<ValueId> inputs,
             std::vector<ValueId> outputs) {
        const Status lowered = e.Lower(attributes, std::move(inputs), std::move(outputs));
        ASSERT_TRUE(lowered.ok()) << lowered.error().message;
        const Status run = e.Run();
        ASSERT_TRUE(run.ok()) << run.error().message;
    }

    void MatMul();
    void MatMulGradInput();
    void MatMulGradWeight();
    void Sum(bool base);
    void SumGradInput();
    void SumGradWeight();

  private:
    ExpertTotal Forward(const Rows& x, int64_t slot, int64_t row, int64_t col) const {
        ExpertTotal total;
        for (int64_t d = 0; d < kCols; ++d) {
            total.Add(At(x, row, d), Weight(Matrix(slot), col, d));
        }
        return total;
    }
    ExpertTotal Back(const Rows& dy, int64_t slot, int64_t row, int64_t col) const {
        ExpertTotal total;
        for (int64_t d = 0; d < kWide; ++d) {
            total.Add(At(dy, row, d), Weight(Matrix(slot), d, col));
        }
        return total;
    }
    // dw of both ops, added to its previous contents.
    template <typename F>
    void ExpectGradient(const std::vector<float>& before, ValueId dw, const F& add) {
        const std::vector<float> got = e.Widened(dw);
        for (int64_t i = 0; i < kHeld * kWide * kCols; ++i) {
            const int64_t matrix = i / (kWide * kCols), row = i / kCols % kWide, col = i % kCols;
            ExpertTotal want;
            want.Add(1, double{before[static_cast<size_t>(i)]});
            for (int64_t slot = 0; slot < slots(); ++slot) {
                if (Matrix(slot) == matrix) add(want, slot, row, col);
            }
            Expect(want, got[static_cast<size_t>(i)], types_.gradient, matrix * kWide + row, col);
        }
    }

    BenchEmitter e;
    ExpertTypes types_;
    int64_t rows_;
    bool rounds_;
    std::vector<int32_t> chosen_;
    std::vector<float> factors_, stack_;
    double largest_ = 0;
    ValueId ids_ = 0, weights_ = 0, w_ = 0;
};

void TrainedExperts::MatMul() {
    const Rows x = AddRows(types_.activation, kCols, false, 1);
    const ValueId y = e.AddValues({kTokens, kUsed, kWide}, types_.activation);
    Run(program::ExpertMatMul{.first_expert = kFirst}, {x.id, ids_, w_}, {y});
    const std::vector<float> got = e.Widened(y);
    for (int64_t i = 0; i < slots() * kWide; ++i) {
        const int64_t slot = i / kWide;
        ExpertTotal want;
        if (Matrix(slot) >= 0) want = Forward(x, slot, slot / kUsed, i % kWide);
        EXPECT_TRUE(Matrix(slot) >= 0 || got[static_cast<size_t>(i)] == 0) << i;
        Expect(want, got[static_cast<size_t>(i)], types_.activation, slot, i % kWide);
    }
}

void TrainedExperts::MatMulGradInput() {
    const Rows dy = AddRows(types_.activation, kWide, true, 2);
    const ValueId dx = e.AddValues({kTokens, kCols}, types_.gradient);
    Run(program::ExpertMatMulGradInput{kFirst}, {dy.id, ids_, w_}, {dx});
    const std::vector<float> got = e.Widened(dx);
    for (int64_t i = 0; i < rows_ * kCols; ++i) {
        ExpertTotal want;
        for (int64_t slot = i / kCols * kUsed; slot < (i / kCols + 1) * kUsed; ++slot) {
            for (int64_t d = 0; Matrix(slot) >= 0 && d < kWide; ++d) {
                want.Add(At(dy, slot, d), Weight(Matrix(slot), d, i % kCols));
            }
        }
        Expect(want, got[static_cast<size_t>(i)], types_.gradient, i / kCols, i % kCols);
    }
}

void TrainedExperts::MatMulGradWeight() {
    const Rows dy = AddRows(types_.activation, kWide, true, 3);
    const Rows x = AddRows(types_.activation, kCols, false, 4);
    const std::vector<float> before =
        Stored(types_.gradient, RandomValues(kHeld * kWide * kCols, 5));
    const ValueId dw = e.AddRounded({kHeld, kWide, kCols}, types_.gradient, before);
    Run(program::ExpertMatMulGradWeight{kFirst}, {dy.id, x.id, ids_}, {dw});
    ExpectGradient(before, dw, [&](ExpertTotal& want, int64_t slot, int64_t row, int64_t col) {
        want.Add(At(dy, slot, row), At(x, slot / kUsed, col));
    });
}

void TrainedExperts::Sum(bool base) {
    const Rows x = AddRows(types_.activation, kCols, true, 6);
    const Rows before = AddRows(DType::kF32, kWide, false, 7);
    const ValueId y = e.AddFloats({kTokens, kWide});
    std::vector<ValueId> inputs = {x.id, ids_, weights_, w_};
    if (base) inputs.push_back(before.id);
    Run(program::ExpertSum{.first_expert = kFirst, .base = base}, inputs, {y});
    const std::vector<float> got = e.Floats(y);
    for (int64_t i = 0; i < rows_ * kWide; ++i) {
        ExpertTotal want;
        if (base) want.Add(1, double{before.floats[static_cast<size_t>(i)]});
        for (int64_t slot = i / kWide * kUsed; slot < (i / kWide + 1) * kUsed; ++slot) {
            for (int64_t d = 0; Matrix(slot) >= 0 && d < kCols; ++d) {
                want.Add(Factor(slot) * At(x, slot, d), Weight(Matrix(slot), i % kWide, d));
            }
        }
        Expect(want, got[static_cast<size_t>(i)], DType::kF32, i / kWide, i % kWide);
    }
}

void TrainedExperts::SumGradInput() {
    const Rows dy = AddRows(DType::kF32, kWide, false, 8);
    const Rows x = AddRows(types_.activation, kCols, true, 9);
    const ValueId dx = e.AddValues({kTokens, kUsed, kCols}, types_.activation);
    const ValueId dweights = e.AddFloats({kTokens, kUsed});
    Run(program::ExpertSumGradInput{kFirst}, {dy.id, x.id, ids_, weights_, w_}, {dx, dweights});
    const std::vector<float> got = e.Widened(dx), dots = e.Floats(dweights);
    for (int64_t slot = 0; slot < slots(); ++slot) {
        ExpertTotal dot;
        double slack = 0;
        for (int64_t col = 0; col < kCols; ++col) {
            const float value = got[static_cast<size_t>(slot * kCols + col)];
            if (Matrix(slot) < 0) {
                EXPECT_EQ(value, 0);
                continue;
            }
            const ExpertTotal product = Back(dy, slot, slot / kUsed, col);
            ExpertTotal want;
            for (int64_t d = 0; d < kWide; ++d) {
                want.Add(Factor(slot) * At(dy, slot / kUsed, d), Weight(Matrix(slot), d, col));
            }
            Expect(want, value, types_.activation, slot, col);
            const double other = double{x.floats[static_cast<size_t>(slot * kCols + col)]};
            dot.Add(product.value, other);
            slack += std::fabs(other) * product.Bound(DType::kF32, largest_);
        }
        EXPECT_TRUE(std::fabs(double{dots[static_cast<size_t>(slot)]} - dot.value) <=
                    dot.Bound(DType::kF32, 0) + slack)
            << slot << ": " << dots[static_cast<size_t>(slot)] << ", not " << dot.value;
    }
}

void TrainedExperts::SumGradWeight() {
    const Rows dy = AddRows(DType::kF32, kWide, false, 13);
    const Rows x = AddRows(types_.activation, kCols, true, 14);
    const std::vector<float> before =
        Stored(types_.gradient, RandomValues(kHeld * kWide * kCols, 15));
    const ValueId dw = e.AddRounded({kHeld, kWide, kCols}, types_.gradient, before);
    Run(program::ExpertSumGradWeight{kFirst}, {dy.id, x.id, ids_, weights_}, {dw});
    ExpectGradient(before, dw, [&](ExpertTotal& want, int64_t slot, int64_t row, int64_t col) {
        const float a = dy.floats[static_cast<size_t>(slot / kUsed * kWide + row)];
        // Multiplied first, then rounded like an operand.
        const float scaled = a * factors_[static_cast<size_t>(slot)];
        want.Add(Taken(scaled), At(x, slot, col));
    });
}

Arithmetic ExpertArithmetic(DType compute, Arithmetic::Matrix matrix) {
    Arithmetic arithmetic;
    arithmetic.compute = compute;
    arithmetic.matrix = matrix;
    return arithmetic;
}
void ExpectTrained(const std::shared_ptr<gpu::Device>& device, int64_t rows, ExpertTypes types,
                   const Arithmetic& arithmetic) {
    TrainedExperts(device, rows, types, arithmetic).MatMul();
    TrainedExperts(device, rows, types, arithmetic).MatMulGradInput();
    TrainedExperts(device, rows, types, arithmetic).MatMulGradWeight();
    TrainedExperts(device, rows, types, arithmetic).Sum(false);
    TrainedExperts(device, rows, types, arithmetic).Sum(true);
    TrainedExperts(device, rows, types, arithmetic).SumGradInput();
    TrainedExperts(device, rows, types, arithmetic).SumGradWeight();
}

TEST(VulkanGemm, TrainedExperts) {
    WEFT_VULKAN(device);
    const ExpertTypes halves = {DType::kBF16, DType::kBF16, DType::kBF16};
    for (const int64_t rows : {1, 90}) {
        ExpectTrained(device, rows, halves,
                      ExpertArithmetic(DType::kBF16, Arithmetic::Matrix::kNone));
        if (HasFailure()) return;
    }
}

TEST(VulkanGemm, TrainedExpertsOnMatrixUnits) {
    WEFT_VULKAN(device);
    const ExpertTypes mixed = {DType::kBF16, DType::kBF16, DType::kF32};
    for (const int64_t rows : {2, 90}) {
        ExpectTrained(device, rows, mixed,
                      ExpertArithmetic(DType::kBF16, test::MatrixOf(device->description())));
        if (HasFailure()) return;
    }
}

// Slots of an expert are added in order, however the device schedules: the same bits.
TEST(VulkanGemm, OrderOfSlotsIsFixed) {
    WEFT_VULKAN(device);
    const int64_t rows = 300, used = 2, experts = 3, n = 9, k = 11;
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < rows; ++t) {
        ids.push_back(t * 7 % 3);
        ids.push_back((t * 7 + 1) % 3);
    }
    std::vector<std::vector<float>> results;
    for (int turn = 0; turn < 2; ++turn) {
        BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
        const ValueId dy =
            e.AddRounded({kTokens, used, n}, DType::kBF16, RandomValues(rows * used * n, 1));
        const ValueId x = e.AddRounded({kTokens, k}, DType::kBF16, RandomValues(rows * k, 2));
        const ValueId chosen = e.AddInts({kTokens, used}, ids);
        const ValueId dw = e.AddFloats({experts, n, k}, std::vector<float>(experts * n * k));
        ASSERT_TRUE(e.Lower(program::ExpertMatMulGradWeight{}, {dy, x, chosen}, {dw}).ok());
        ASSERT_TRUE(e.Run().ok());
        results.push_back(e.Floats(dw));
    }
    EXPECT_EQ(results[0], results[1]);
}

// A stack of a file, with padded rows or of a block type, gives the same result as the same numbers
// in contiguous rows.
TEST(VulkanGemm, StacksOfAFile) {
    WEFT_VULKAN(device);
    const int64_t experts = 3, used = 2, n = 21, rows = 5;
    for (const DType dtype : {DType::kQ8_0, DType::kBF16}) {
        const int64_t k = dtype == DType::kBF16 ? 37 : 64;
        const RandomWeight weight(dtype, experts * n, k, 2);
        std::vector<std::vector<float>> results;
        for (const bool file : {true, false}) {
            BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
            e.set_arithmetic(ExpertArithmetic(DType::kBF16, Arithmetic::Matrix::kNone));
            const ValueId x = e.AddRounded({kTokens, k}, DType::kBF16, RandomValues(rows * k, 3));
            const ValueId dy =
                e.AddRounded({kTokens, used, n}, DType::kBF16, RandomValues(rows * used * n, 4));
            const ValueId ids =
                e.AddInts({kTokens, used}, std::vector<int32_t>{0, 1, 1, 2, 2, 0, 1, 0, 2, 1});
            const ValueId w = file ? e.AddWeight(dtype, {experts, n, k}, weight.blocks)
                                   : e.AddRounded({experts, n, k}, DType::kBF16, weight.floats);
            const ValueId y = e.AddValues({kTokens, used, n}, DType::kBF16);
            const ValueId dx = e.AddFloats({kTokens, k});
            ASSERT_TRUE(e.Lower(program::ExpertMatMul{}, {x, ids, w}, {y}).ok());
            ASSERT_TRUE(e.Lower(program::ExpertMatMulGradInput{}, {dy, ids, w}, {dx}).ok());
            const Status run = e.Run();
            ASSERT_TRUE(run.ok()) << run.error().message;
            results.push_back(e.Widened(y));
            const std::vector<float> gradient = e.Floats(dx);
            results.back().insert(results.back().end(), gradient.begin(), gradient.end());
        }
        EXPECT_EQ(results[0], results[1]) << Info(dtype).name;
    }
}

// Ops that share a routing share one plan.
TEST(VulkanGemm, PlansAreShared) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 4});
    const ValueId x = e.AddValues({kTokens, 8}, DType::kBF16);
    const ValueId ids = e.AddInts({kTokens, 2}, std::vector<int32_t>{0, 1, 1, 2, 2, 0, 1, 0});
    const ValueId w = e.AddValues({3, 5, 8}, DType::kBF16);
    const ValueId gate = e.AddValues({kTokens, 2, 5}, DType::kBF16);
    const ValueId up = e.AddValues({kTokens, 2, 5}, DType::kBF16);
    ASSERT_TRUE(e.Lower(program::ExpertMatMul{}, {x, ids, w}, {gate}).ok());
    EXPECT_EQ(e.dispatch_count(), 2u);
    ASSERT_TRUE(e.Lower(program::ExpertMatMul{}, {x, ids, w}, {up}).ok());
    EXPECT_EQ(e.dispatch_count(), 3u);
}

}  // namespace
}  // namespace weft::backend::on_gpu
