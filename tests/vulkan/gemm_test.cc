// Matrix products of training on a Vulkan device against the reference kernel: forms, types,
// strides, tails, sums of many terms, numbers outside the range of float16.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/gpu/lower/gemm.h"
#include "kernels/kernels.h"
#include "support/dense_elements.h"
#include "support/nightly.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/matrix_of.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

namespace dense = kernels::dense;
using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

constexpr DType kFull = DType::kF32, kBrain = DType::kBF16, kHalf = DType::kF16;

dense::Element DenseElement(DType dtype) {
    return dtype == kFull    ? dense::Element::kF32
           : dtype == kBrain ? dense::Element::kBf16
                             : dense::Element::kF16;
}
float StoredAs(DType dtype, float x) {
    return dense::Stored(DenseElement(dtype), x);
}

struct GemmCase {
    GemmForm form = GemmForm::kNT;
    int64_t m = 1, n = 1, k = 1;
    DType a = kFull, b = kFull, c = kFull;
    bool accumulate = false;
    int64_t gap = 0, begin = 0;  // elements between rows, and before the first
    std::string Text() const {
        return fmt::format("form {} m {} n {} k {} types {} {} {} accumulate {} gap {} begin {}",
                           static_cast<int>(form), m, n, k, Info(a).name, Info(b).name,
                           Info(c).name, accumulate, gap, begin);
    }
};

// A matrix with NaN in all gaps, and its elements as floats.
struct TestMatrix {
    GemmMatrix place;
    ValueId value;
    std::vector<float> floats;  // contiguous rows
};

TestMatrix MakeMatrix(BenchEmitter& e, const GemmCase& c, DType dtype, int64_t rows, int64_t cols,
                      uint32_t seed) {
    TestMatrix matrix;
    const int64_t stride = cols + c.gap, size = c.begin + rows * stride;
    matrix.floats = RandomValues(rows * cols, seed);
    std::vector<float> all(static_cast<size_t>(size), NAN);
    for (int64_t i = 0; i < rows * cols; ++i) {
        float& x = matrix.floats[static_cast<size_t>(i)];
        x = StoredAs(dtype, x);
        all[static_cast<size_t>(c.begin + i / cols * stride + i % cols)] = x;
    }
    matrix.value = e.AddRounded({size}, dtype, all);
    matrix.place = {dtype,
                    e.Address(matrix.value) + static_cast<uint64_t>(RowBytes(dtype, c.begin)), rows,
                    cols, stride};
    return matrix;
}

// x as the product reads an operand.
std::vector<float> Operand(const std::vector<float>& x, DType compute) {
    std::vector<float> rounded = x;
    for (float& value : rounded) value = StoredAs(compute, value);
    return rounded;
}

// A sum by the reference kernel, and the error bound of a device. Both add k products in float32.
// In a chain of fma, each rounding moves the sum by at most 2^-24 of the sum of magnitudes so far;
// if products are rounded first, by twice that. Together both are off by at most 3 k 2^-24 of the
// sum of magnitudes. In float16 on matrix units (gemm_matrix.glsl), an operand loses at most 2^-28
// of the largest magnitude of its row or column, and hardware may truncate when it adds: 2^-22
// instead of 2^-24. Denormals of bfloat16 and of products may count as zeros: 2^-126 times the
// other factor.
struct WantedSum {
    double value = 0, bound = 0;
};

class Wanted {
  public:
    Wanted(const GemmCase& c, const Arithmetic& arithmetic, const std::vector<float>& a,
           const std::vector<float>& b, const std::vector<float>& old)
        : c_(c), a_(Operand(a, arithmetic.compute)), b_(Operand(b, arithmetic.compute)) {
        halves_ = arithmetic.matrix != Arithmetic::Matrix::kNone && arithmetic.compute == kBrain;
        const bool turn_a = c.form == GemmForm::kTN, turn_b = c.form != GemmForm::kNT;
        a_row_ = turn_a ? 1 : c.k;
        a_term_ = turn_a ? c.m : 1;
        b_column_ = turn_b ? 1 : c.k;
        b_term_ = turn_b ? c.n : 1;
        dense::GemmArgs args;
        args.a = {a.data(), a_row_, a_term_};
        args.b = {b.data(), b_term_, b_column_};
        sums_ = old;
        args.c = {sums_.data(), c.n};
        args.m = c.m;
        args.n = c.n;
        args.k = c.k;
        args.accumulate = c.accumulate;
        args.compute = arithmetic.compute == kBrain ? dense::Compute::kBf16 : dense::Compute::kF32;
        kernels::KernelsFor(CpuLevel::kReference).gemm(args, {}, 0, 1);
    }
    WantedSum At(int64_t i, int64_t j, float old) const {
        double sizes = 0, a_sum = 0, b_sum = 0, a_peak = 0, b_peak = 0;
        for (int64_t d = 0; d < c_.k; ++d) {
            const double x = std::fabs(double{a_[At(i * a_row_ + d * a_term_)]});
            const double y = std::fabs(double{b_[At(j * b_column_ + d * b_term_)]});
            sizes += x * y;
            a_sum += x;
            b_sum += y;
            a_peak = std::max(a_peak, x);
            b_peak = std::max(b_peak, y);
        }
        WantedSum want;
        want.value = double{sums_[At(i * c_.n + j)]};
        const double each = halves_ ? 0x1p-22 : 3 * 0x1p-24;
        want.bound = static_cast<double>(c_.k + 2) * each * (sizes + std::fabs(double{old})) +
                     0x1p-126 * (a_sum + b_sum + static_cast<double>(c_.k));
        if (halves_) want.bound += 0x1p-28 * (a_sum * b_peak + b_sum * a_peak);
        // The device rounds to the type of C, the reference does not.
        want.bound += dense::Rounding(DenseElement(c_.c), std::fabs(want.value) + want.bound);
        return want;
    }

  private:
    static size_t At(int64_t i) { return static_cast<size_t>(i); }
    const GemmCase& c_;
    bool halves_ = false;
    std::vector<float> a_, b_, sums_;
    int64_t a_row_, a_term_, b_column_, b_term_;
};

// Runs a product, compares it, and returns its result.
std::vector<float> ExpectGemm(const std::shared_ptr<gpu::Device>& device,
                              const Arithmetic& arithmetic, const GemmCase& c, uint32_t seed) {
    BenchEmitter e(device, StepShape{.rows = 1});
    e.set_arithmetic(arithmetic);
    if (arithmetic.least_large_tiles == 1) e.set_kind(gpu::Kind::kDiscrete);
    const bool turn_a = c.form == GemmForm::kTN, turn_b = c.form != GemmForm::kNT;
    const TestMatrix a = MakeMatrix(e, c, c.a, turn_a ? c.k : c.m, turn_a ? c.m : c.k, seed);
    const TestMatrix b = MakeMatrix(e, c, c.b, turn_b ? c.k : c.n, turn_b ? c.n : c.k, seed + 1);
    TestMatrix out = MakeMatrix(e, c, c.c, c.m, c.n, seed + 2);
    if (!c.accumulate) e.Poison(out.value);
    const Status lowered = EmitGemm(e, {c.form, a.place, b.place, out.place, c.accumulate});
    EXPECT_TRUE(lowered.ok()) << lowered.error().message;
    const Status run = lowered.ok() ? e.Run() : Status{};
    EXPECT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> all = e.Widened(out.value);
    const Wanted wanted(c, arithmetic, a.floats, b.floats, out.floats);
    std::vector<float> got;
    for (int64_t at = 0; at < static_cast<int64_t>(all.size()); ++at) {
        const int64_t i = (at - c.begin) / out.place.stride, j = (at - c.begin) % out.place.stride;
        const float value = all[static_cast<size_t>(at)];
        if (at < c.begin || j >= c.n) {
            EXPECT_TRUE(std::isnan(value)) << c.Text() << ": element " << at << " was written";
            continue;
        }
        const float old = c.accumulate ? out.floats[static_cast<size_t>(i * c.n + j)] : 0;
        const WantedSum want = wanted.At(i, j, old);
        got.push_back(value);
        if (std::fabs(double{value} - want.value) <= want.bound) continue;
        ADD_FAILURE() << c.Text() << ": (" << i << ", " << j << ") is " << value << ", not "
                      << want.value << " +- " << want.bound;
        return got;
    }
    return got;
}

Arithmetic Widening() {
    return {};
}
Arithmetic RoundingOperands() {
    Arithmetic arithmetic;
    arithmetic.compute = kBrain;
    return arithmetic;
}
Arithmetic Matrices(const std::shared_ptr<gpu::Device>& device) {
    Arithmetic arithmetic = RoundingOperands();
    arithmetic.matrix = test::MatrixOf(device->description());
    return arithmetic;
}

struct GemmTypes {
    GemmForm form;
    DType a, b, c;
};
// The types of training: activations of 16 bits, a residual stream and gradients of float32,
// adapters of float32.
constexpr GemmTypes kTrained[] = {
    {GemmForm::kNT, kBrain, kBrain, kBrain}, {GemmForm::kNT, kBrain, kBrain, kFull},
    {GemmForm::kNT, kBrain, kFull, kBrain},  {GemmForm::kNT, kFull, kFull, kFull},
    {GemmForm::kNN, kBrain, kBrain, kBrain}, {GemmForm::kNN, kFull, kBrain, kFull},
    {GemmForm::kNN, kBrain, kFull, kBrain},  {GemmForm::kNN, kFull, kFull, kFull},
    {GemmForm::kTN, kBrain, kBrain, kBrain}, {GemmForm::kTN, kFull, kBrain, kFull},
    {GemmForm::kTN, kFull, kFull, kFull},    {GemmForm::kTN, kHalf, kHalf, kHalf},
};
struct GemmSizes {
    int64_t m, n, k, gap, begin;
};
// One kernel for each type (compiling them takes most of the time), with partial tiles and rows
// that begin anywhere.
constexpr GemmSizes kUneven[] = {{65, 66, 33, 0, 1}, {33, 65, 1, 1, 3}};
// Rows and columns of few elements, and rows that begin at multiples of 16 bytes.
constexpr GemmSizes kOthers[] = {{1, 40, 17, 0, 1}, {70, 1, 5, 1, 2}, {64, 136, 64, 0, 0}};

void ExpectGemms(const std::shared_ptr<gpu::Device>& device, const Arithmetic& arithmetic,
                 const GemmTypes& types, std::span<const GemmSizes> sizes) {
    for (const GemmSizes& s : sizes) {
        GemmCase c{types.form, s.m, s.n, s.k, types.a, types.b, types.c};
        c.accumulate = types.form == GemmForm::kTN && s.gap == 0;
        c.gap = s.gap;
        c.begin = s.begin;
        ExpectGemm(device, arithmetic, c, static_cast<uint32_t>(s.m));
    }
}

TEST(VulkanGemm, FormsTypesAndTails) {
    WEFT_VULKAN(device);
    for (const GemmTypes& types : kTrained) {
        ExpectGemms(device, Widening(), types, kUneven);
        if (HasFailure()) return;
    }
}

TEST(VulkanGemm, FewRowsAndAlignedOnes) {
    WEFT_VULKAN(device);
    ExpectGemms(device, Widening(), kTrained[0], kOthers);
    ExpectGemms(device, Widening(), kTrained[5], kOthers);
    ExpectGemms(device, Widening(), kTrained[8], kOthers);
}

TEST(VulkanGemm, OperandsAreRounded) {
    WEFT_VULKAN(device);
    for (const size_t i : {2, 5, 10}) {
        ExpectGemms(device, RoundingOperands(), kTrained[i], kUneven);
    }
}

TEST(VulkanGemm, FormsTypesAndTailsOnMatrixUnits) {
    WEFT_VULKAN(device);
    for (const size_t i : {0, 5, 8, 9}) {
        ExpectGemms(device, Matrices(device), kTrained[i], kUneven);
    }
    ExpectGemms(device, Matrices(device), kTrained[0], kOthers);
}

// Tiles that are not used on a CPU device.
TEST(VulkanGemm, LargeTiles) {
    WEFT_VULKAN(device);
    for (Arithmetic arithmetic : {Widening(), Matrices(device)}) {
        // The emulation does not have enough shared memory for them.
        if (arithmetic.matrix == Arithmetic::Matrix::kEmulated) continue;
        arithmetic.least_large_tiles = 1;
        ExpectGemm(device, arithmetic, {GemmForm::kNT, 130, 140, 20, kBrain, kBrain, kFull}, 1);
        ExpectGemm(device, arithmetic, {GemmForm::kTN, 129, 131, 35, kFull, kBrain, kBrain, true},
                   2);
    }
}

// Sums of more terms than one loop may have iterations, and for TN, of more than one workgroup
// adds.
TEST(VulkanGemm, ManyTerms) {
    WEFT_VULKAN(device);
    ExpectGemm(device, Widening(), {GemmForm::kNT, 2, 3, 70001, kBrain, kBrain, kFull}, 1);
    for (const bool accumulate : {false, true}) {
        ExpectGemm(device, Widening(),
                   {GemmForm::kTN, 5, 3, 70001, kBrain, kBrain, kBrain, accumulate}, 3);
        ExpectGemm(device, Matrices(device),
                   {GemmForm::kTN, 5, 70, 1111, kBrain, kBrain, kBrain, accumulate, 2, 5}, 4);
    }
}

TEST(VulkanGemm, NoTermsAndNoRows) {
    WEFT_VULKAN(device);
    for (const GemmForm form : {GemmForm::kNT, GemmForm::kNN, GemmForm::kTN}) {
        const bool accumulate = form == GemmForm::kTN;
        ExpectGemm(device, Widening(), {form, 65, 66, 0, kFull, kFull, kFull, accumulate, 0, 1}, 1);
        ExpectGemm(device, Widening(), {form, 0, 66, 4, kFull, kFull, kFull, false, 0, 1}, 1);
    }
    ExpectGemm(device, Matrices(device), {GemmForm::kTN, 3, 5, 0, kBrain, kBrain, kBrain}, 1);
}

// A product with more terms than any kernel supports is refused with a message, not computed
// wrongly.
TEST(VulkanGemm, TooManyTermsAreRefused) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 1});
    const int64_t k = (int64_t{1} << 20) + 1;
    const GemmMatrix row{kFull, 1 << 20, 1, k, k}, sum{kFull, 1 << 10, 1, 1, 1};
    const Status status = EmitGemm(e, {GemmForm::kNT, row, row, sum, false});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find("1048577 terms"), std::string::npos)
        << status.error().message;
    EXPECT_EQ(e.dispatch_count(), 0u);
}

// The same product twice has the same bits, and a row's bits do not depend on other rows.
TEST(VulkanGemm, SameBits) {
    WEFT_VULKAN(device);
    for (const Arithmetic& arithmetic : {Widening(), Matrices(device)}) {
        const GemmCase weights{GemmForm::kTN, 20, 70, 2100, kBrain, kBrain, kBrain, true};
        EXPECT_EQ(ExpectGemm(device, arithmetic, weights, 7),
                  ExpectGemm(device, arithmetic, weights, 7));
        for (const GemmForm form : {GemmForm::kNT, GemmForm::kNN}) {
            GemmCase c{form, 70, 40, 50, kBrain, kBrain, kBrain};
            const std::vector<float> all = ExpectGemm(device, arithmetic, c, 8);
            c.m = 9;  // the first of these rows: values are generated in order
            const std::vector<float> few = ExpectGemm(device, arithmetic, c, 8);
            ASSERT_EQ(few.size(), 9u * 40u);
            EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
        }
    }
}

// Float16 values below 2^-14 are read and written exactly, and values beyond 65,504 become
// infinite.
TEST(VulkanGemm, HalvesAtBothEnds) {
    WEFT_VULKAN(device);
    const std::vector<float> a = {0x1p-24f, -0x1.8p-20f, 1024, 0x1p15f};
    const std::vector<float> b = {1, 0x1p-2f, -64, 3};
    BenchEmitter e(device, StepShape{.rows = 4});
    const ValueId x = e.AddRounded({kTokens, 1}, kHalf, a), w = e.AddRounded({4, 1}, kHalf, b);
    const ValueId y = e.AddValues({kTokens, 4}, kHalf);
    ASSERT_TRUE(e.Lower(program::MatMul{}, {x, w}, {y}).ok());
    ASSERT_TRUE(e.Run().ok());
    const std::vector<float> got = e.Widened(y);
    for (size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(got[i], StoredAs(kHalf, a[i / 4] * b[i % 4])) << i;
    }
    EXPECT_EQ(got[4 * 2 + 2], -INFINITY);
}

// A bfloat16 is rounded to nearest even; NaN and infinity are kept. Denormals may become zeros
// (kernels/dense/element.h).
TEST(VulkanGemm, RoundsToNearestEven) {
    WEFT_VULKAN(device);
    const std::vector<float> a = {1.00390625f, 1.01171875f,     -3.0e38f,  NAN,
                                  INFINITY,    0x1.fffffep127f, 0x1p-130f, -0x1.8p-129f};
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(a.size())});
    const ValueId x = e.AddFloats({kTokens, 1}, a);
    const ValueId one = e.AddRounded({1, 1}, kBrain, std::vector<float>{1.0f});
    const ValueId y = e.AddValues({kTokens, 1}, kBrain);
    ASSERT_TRUE(e.Lower(program::MatMul{}, {x, one}, {y}).ok());
    ASSERT_TRUE(e.Run().ok());
    const std::vector<float> got = e.Widened(y);
    for (size_t i = 0; i < a.size(); ++i) {
        const float want = StoredAs(kBrain, a[i]);
        const bool flushed = std::fabs(want) < 0x1p-126f && got[i] == 0;
        EXPECT_TRUE(got[i] == want || flushed || (std::isnan(got[i]) && std::isnan(want)))
            << a[i] << ": " << got[i];
    }
}

// Rows of very different magnitudes, some outside the range of float16; NaN and infinity affect
// only their own rows.
TEST(VulkanGemm, MatrixUnitsScaleRowsAndColumns) {
    WEFT_VULKAN(device);
    for (const GemmForm form : {GemmForm::kNT, GemmForm::kNN, GemmForm::kTN}) {
        const int64_t m = 6, n = 5, k = 40;
        const bool turn_a = form == GemmForm::kTN, turn_b = form != GemmForm::kNT;
        GemmCase c{form, m, n, k, kBrain, kBrain, kFull};
        std::vector<float> a = RandomValues(m * k, 1), b = RandomValues(n * k, 2);
        const auto at_a = [&](int64_t i, int64_t d) -> float& {
            return a[static_cast<size_t>(turn_a ? d * m + i : i * k + d)];
        };
        const auto at_b = [&](int64_t j, int64_t d) -> float& {
            return b[static_cast<size_t>(turn_b ? d * n + j : j * k + d)];
        };
        for (int64_t d = 0; d < k; ++d) {
            at_a(1, d) *= 0x1p70f;
            at_a(2, d) *= 0x1p-80f;
            at_a(3, d) = 0;
            at_b(1, d) *= 0x1p-60f;
            at_b(2, d) *= 0x1p50f;
        }
        at_a(4, 7) = NAN;
        at_b(4, 9) = -INFINITY;
        for (std::vector<float>* x : {&a, &b}) {
            for (float& value : *x) value = StoredAs(kBrain, value);
        }
        BenchEmitter e(device, StepShape{.rows = 1});
        e.set_arithmetic(Matrices(device));
        const ValueId in_a = e.AddRounded({m * k}, kBrain, a),
                      in_b = e.AddRounded({n * k}, kBrain, b);
        const ValueId out = e.AddFloats({m * n});
        const int64_t a_cols = turn_a ? m : k, b_cols = turn_b ? n : k;
        ASSERT_TRUE(EmitGemm(e, {form,
                                 {kBrain, e.Address(in_a), m * k / a_cols, a_cols, a_cols},
                                 {kBrain, e.Address(in_b), n * k / b_cols, b_cols, b_cols},
                                 {kFull, e.Address(out), m, n, n},
                                 false})
                        .ok());
        ASSERT_TRUE(e.Run().ok());
        const std::vector<float> got = e.Floats(out);
        const Wanted wanted(c, Matrices(device), a, b, std::vector<float>(m * n));
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                const float value = got[static_cast<size_t>(i * n + j)];
                if (i == 4 || j == 4) {
                    EXPECT_FALSE(std::isfinite(value)) << i << ", " << j;
                    continue;
                }
                const WantedSum want = wanted.At(i, j, 0);
                EXPECT_TRUE(std::fabs(double{value} - want.value) <= want.bound)
                    << "(" << i << ", " << j << ") is " << value << ", not " << want.value;
            }
        }
    }
}

// ---- Ops of a Program ---------------------------------------------------------------------------

// Compares an op's result with the product of these floats.
void ExpectOp(BenchEmitter& e, const GemmCase& c, const Arithmetic& arithmetic,
              const std::vector<float>& a, const std::vector<float>& b,
              const std::vector<float>& old, ValueId out) {
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> got = e.Widened(out);
    ASSERT_EQ(got.size(), static_cast<size_t>(c.m * c.n));
    const Wanted wanted(c, arithmetic, a, b, old);
    for (int64_t i = 0; i < c.m * c.n; ++i) {
        const auto at = static_cast<size_t>(i);
        const WantedSum want = wanted.At(i / c.n, i % c.n, c.accumulate ? old[at] : 0);
        ASSERT_TRUE(std::fabs(double{got[at]} - want.value) <= want.bound)
            << c.Text() << ": element " << i << " is " << got[at] << ", not " << want.value;
    }
}

std::vector<float> AllStoredAs(std::vector<float> x, DType dtype) {
    for (float& value : x) value = StoredAs(dtype, value);
    return x;
}

// y and dx of a weight, which is a view of a weight unit, or a weight of a file.
void ExpectWeight(const std::shared_ptr<gpu::Device>& device, const Arithmetic& arithmetic,
                  const RandomWeight& weight, bool view) {
    const int64_t rows = 11, n = weight.rows, k = weight.cols;
    const DType dtype = weight.dtype;
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
    e.set_arithmetic(arithmetic);
    std::vector<float> unit(static_cast<size_t>(n * k + 3), NAN);
    std::ranges::copy(weight.floats, unit.begin() + 3);
    const ValueId w = view ? e.AddView({n, k}, e.AddRounded({n * k + 3}, dtype, unit), 3)
                           : e.AddWeight(dtype, {n, k}, weight.blocks);
    const std::vector<float> x = AllStoredAs(RandomValues(rows * k, 5), kBrain);
    const std::vector<float> dy = AllStoredAs(RandomValues(rows * n, 6), kBrain);
    const ValueId in = e.AddRounded({kTokens, k}, kBrain, x);
    const ValueId y = e.AddValues({kTokens, n}, kBrain);
    ASSERT_TRUE(e.Lower(program::MatMul{}, {in, w}, {y}).ok());
    const DType stored = Info(dtype).quantized ? arithmetic.compute : dtype;
    const std::vector<float> floats = AllStoredAs(weight.floats, stored);
    ExpectOp(e, {GemmForm::kNT, rows, n, k, kBrain, stored, kBrain}, arithmetic, x, floats,
             std::vector<float>(static_cast<size_t>(rows * n)), y);
    const ValueId gradient = e.AddRounded({kTokens, n}, kBrain, dy);
    const ValueId dx = e.AddValues({kTokens, k}, kFull);
    ASSERT_TRUE(e.Lower(program::MatMulGradInput{}, {gradient, w}, {dx}).ok());
    ExpectOp(e, {GemmForm::kNN, rows, k, n, kBrain, stored, kFull}, arithmetic, dy, floats,
             std::vector<float>(static_cast<size_t>(rows * k)), dx);
}

// Rows of a weight of a file are padded; rows of a view are not, and begin at any element.
TEST(VulkanGemm, WeightsOfEachPlace) {
    WEFT_VULKAN(device);
    for (const bool view : {false, true}) {
        ExpectWeight(device, Widening(), RandomWeight(kHalf, 21, 37, 4), view);
        ExpectWeight(device, view ? RoundingOperands() : Matrices(device),
                     RandomWeight(kBrain, 21, 37, 5), view);
        ExpectWeight(device, view ? Matrices(device) : RoundingOperands(),
                     RandomWeight(kFull, 21, 37, 6), view);
        if (HasFatalFailure()) return;
    }
}

// QLoRA: weights of block types are first decoded to bfloat16 or float32.
TEST(VulkanGemm, BlockTypesAreDecoded) {
    WEFT_VULKAN(device);
    uint32_t seed = 0;
    const DType types[] = {DType::kQ4_0,  DType::kQ8_0, DType::kQ4_K,
                           DType::kIQ2_S, DType::kW4,   DType::kMXFP4};
    for (const DType dtype : weft::test::Some(types, 2)) {
        const Arithmetic arithmetic = ++seed % 3 == 0 ? Widening() : Matrices(device);
        ExpectWeight(device, arithmetic, RandomWeight(dtype, 21, 256, seed), false);
        if (HasFatalFailure()) return;
    }
}

// Parts of a weight, such as an output matrix that is too large to be decoded at once.
TEST(VulkanGemm, RowsOfAWeight) {
    WEFT_VULKAN(device);
    for (const DType dtype : {DType::kQ8_0, kBrain}) {
        const RandomWeight weight(dtype, 40, 64, 2);
        BenchEmitter e(device, StepShape{.rows = 1});
        e.set_arithmetic(RoundingOperands());
        const ValueId w = e.AddWeight(dtype, {40, 64}, weight.blocks);
        const std::vector<float> x = AllStoredAs(RandomValues(64, 3), kBrain);
        const ValueId in = e.AddRounded({1, 64}, kBrain, x), y = e.AddFloats({5});
        const Result<GemmMatrix> rows = RowsOfWeight(e, e.Weight(w), 7, 5);
        ASSERT_TRUE(rows.ok()) << rows.error().message;
        ASSERT_TRUE(EmitGemm(e, {GemmForm::kNT,
                                 {kBrain, e.Address(in), 1, 64, 64},
                                 *rows,
                                 {kFull, e.Address(y), 1, 5, 5},
                                 false})
                        .ok());
        const std::vector<float> floats(weight.floats.begin() + 7 * 64,
                                        weight.floats.begin() + 12 * 64);
        ExpectOp(e, {GemmForm::kNT, 1, 5, 64, kBrain, kBrain, kFull}, RoundingOperands(), x,
                 AllStoredAs(floats, kBrain), std::vector<float>(5), y);
        if (HasFatalFailure()) return;
    }
}

TEST(VulkanGemm, GradientsAreAddedToViews) {
    WEFT_VULKAN(device);
    const int64_t rows = 40, n = 7, k = 19, begin = 5;
    for (const DType dtype : {kFull, kBrain}) {
        for (const Arithmetic& arithmetic :
             {dtype == kFull ? RoundingOperands() : Matrices(device)}) {
            BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
            e.set_arithmetic(arithmetic);
            const std::vector<float> x = AllStoredAs(RandomValues(rows * k, 1), kBrain);
            const std::vector<float> dy = RandomValues(rows * n, 2);
            const std::vector<float> unit = AllStoredAs(RandomValues(n * k + 9, 3), dtype);
            const ValueId base =
                e.AddRounded({n * k + 9}, dtype, unit, program::Storage::kGradient);
            const ValueId dw = e.AddView({n, k}, base, begin);
            const ValueId in = e.AddRounded({kTokens, k}, kBrain, x);
            const ValueId gradient = e.AddFloats({kTokens, n}, dy);
            ASSERT_TRUE(e.Lower(program::MatMulGradWeight{}, {gradient, in}, {dw}).ok());
            const Status run = e.Run();
            ASSERT_TRUE(run.ok()) << run.error().message;
            const std::vector<float> got = e.Widened(base);
            const std::vector<float> old(unit.begin() + begin, unit.begin() + begin + n * k);
            const GemmCase c{GemmForm::kTN, n, k, rows, kFull, kBrain, dtype, true};
            const Wanted wanted(c, arithmetic, dy, x, old);
            for (int64_t i = 0; i < n * k + 9; ++i) {
                const auto at = static_cast<size_t>(i);
                const int64_t element = i - begin;
                if (element < 0 || element >= n * k) {
                    EXPECT_EQ(got[at], unit[at]) << i;
                    continue;
                }
                const WantedSum want = wanted.At(element / k, element % k, unit[at]);
                ASSERT_TRUE(std::fabs(double{got[at]} - want.value) <= want.bound)
                    << i << ": " << got[at] << ", not " << want.value;
            }
        }
    }
}

// Float32 activations with a weight of a file use the kernels of inference.
TEST(VulkanGemm, InferenceKeepsItsKernels) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 20});
    const RandomWeight weight(kBrain, 9, 40, 1);
    const ValueId x = e.AddFloats({kTokens, 40}, RandomValues(20 * 40, 2));
    const ValueId w = e.AddWeight(kBrain, {9, 40}, weight.blocks);
    const ValueId y = e.AddFloats({kTokens, 9});
    ASSERT_TRUE(e.Lower(program::MatMul{}, {x, w}, {y}).ok());
    const std::vector<Dispatch> made = e.TakeDispatches();
    ASSERT_EQ(made.size(), 1u);
    EXPECT_FALSE(IsTrainingProduct(e, x, w, y));
    const ValueId half = e.AddValues({kTokens, 9}, kBrain);
    EXPECT_TRUE(IsTrainingProduct(e, x, w, half));
}

// A kernel for float32 refuses activations of 16 bits.
TEST(VulkanGemm, OpsOfFloat32RefuseHalves) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 2});
    const ValueId x = e.AddValues({kTokens, 4}, kBrain), y = e.AddFloats({kTokens, 1});
    const Status status =
        e.LowerNumber(e.AddOp(program::SumSquares{.columns = {{0, 4}}}, {x}, {y}));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    const ValueId w = e.AddValues({3, 4}, kBrain), out = e.AddValues({kTokens, 3}, kBrain);
    const Status product = e.LowerNumber(e.AddOp(program::MatMul{}, {x, w}, {out}));
    EXPECT_TRUE(product.ok()) << product.error().message;
}

TEST(VulkanGemm, ABiasIsRefused) {
    WEFT_VULKAN(device);
    BenchEmitter e(device, StepShape{.rows = 2});
    const ValueId x = e.AddValues({kTokens, 4}, kBrain), w = e.AddValues({3, 4}, kBrain);
    const ValueId bias = e.AddFloats({3}), y = e.AddValues({kTokens, 3}, kBrain);
    const Status status = e.Lower(program::MatMul{}, {x, w, bias}, {y});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace weft::backend::on_gpu
