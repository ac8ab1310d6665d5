// The translation of kernels to C++ (gpu/spirv): every shader has one, and the text computes on the
// host what float64 arithmetic gives.
#include "gpu/spirv/translate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>
#include <utility>

#include "gpu/emulated_kernel.h"
#include "tensor/half.h"

namespace weft::test {
namespace {

using gpu::spirv::Language;
using gpu::spirv::Specialization;

TEST(Translate, EveryShader) {
    ASSERT_FALSE(shaders::Names().empty());
    const Specialization threads[] = {{0, 64}};
    for (const auto& name : shaders::Names()) {
        for (const Language language : {Language::kHip, Language::kCuda}) {
            const uint32_t subgroup = language == Language::kHip ? 64 : 32;
            const auto text =
                gpu::spirv::Translate({name, shaders::Find(name), threads, subgroup, language});
            EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
            if (!text.ok()) continue;
            EXPECT_EQ(text->local_size[0], 64u) << name;
            EXPECT_LE(text->args_bytes, 128u) << name;
            EXPECT_NE(text->source.find(text->entry), std::string::npos) << name;
        }
    }
}

TEST(Translate, NamesUnknownInstruction) {
    const auto rope = shaders::Find("rope");
    std::vector<uint32_t> words(rope.begin(), rope.end());
    words.insert(words.begin() + 5, 1u << 16 | 4321u);
    const auto text = gpu::spirv::Translate({.name = "rope", .spirv = words, .constants = {}});
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(text.error().message.find("kernel rope: "), std::string::npos);
    EXPECT_NE(text.error().message.find("instruction 4321"), std::string::npos);
}

TEST(Translate, NamesUnknownCapability) {
    const auto rope = shaders::Find("rope");
    std::vector<uint32_t> words(rope.begin(), rope.end());
    words.insert(words.begin() + 5, {2u << 16 | 17u, 4321u});
    const auto text = gpu::spirv::Translate({.name = "rope", .spirv = words, .constants = {}});
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("capability 4321"), std::string::npos);
}

TEST(Translate, KeepsControlOfLoops) {
    const Specialization constants[] = {{0, 128}};
    const auto text =
        gpu::spirv::Translate({"attention", shaders::Find("attention"), constants, 32});
    ASSERT_TRUE(text.ok());
    EXPECT_NE(text->source.find("WEFT_KEEP for (;;) {"), std::string::npos);
}

// A separate product and sum would be two instructions, and values would live longer.
TEST(Translate, DotProductsTakeTheirAddends) {
    const Specialization constants[] = {{0, 128}};
    const std::regex vector(R"(dot4\(v\d+, v\d+, v\d+\.at\[3\]\))");
    const std::regex scalar(R"(dot4\(v\d+, v\d+, v\d+\))");
    for (const auto& [name, form] :
         {std::pair("tile_dot_q4_0", &vector), std::pair("matvec_dot_q4_0", &scalar)}) {
        const auto text = gpu::spirv::Translate({name, shaders::Find(name), constants, 32});
        ASSERT_TRUE(text.ok());
        EXPECT_TRUE(std::regex_search(text->source, *form)) << name;
    }
}

std::vector<float> Random(size_t count, uint32_t seed) {
    std::mt19937 bits(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(bits);
    return values;
}

// Both output languages, each with its subgroup sizes.
class Emulated : public ::testing::TestWithParam<Language> {
  protected:
    uint32_t subgroup() const { return GetParam() == Language::kHip ? 64 : 32; }
};
INSTANTIATE_TEST_SUITE_P(Languages, Emulated, ::testing::Values(Language::kHip, Language::kCuda),
                         [](const auto& language) {
                             return language.param == Language::kHip ? "Hip" : "Cuda";
                         });

TEST_P(Emulated, RopeRotatesPairs) {
    constexpr uint32_t kHeads = 3, kDim = 80, kPairs = 32, kRows = 5;
    const int32_t positions[kRows] = {0, 5, 255, 300, 70000};
    const auto x = Random(kRows * kHeads * kDim, 1);
    std::vector<float> y(x.size()), fine(256 * kPairs * 2), coarse(300 * kPairs * 2);
    const auto frequency = [](uint32_t i) { return std::pow(10000.0, -double(i) / kPairs); };
    for (uint32_t i = 0; i < kPairs; ++i) {
        for (uint32_t p = 0; p < 300; ++p) {
            const double low = p * frequency(i), high = p * 256 * frequency(i);
            if (p < 256) fine[2 * (p * kPairs + i)] = float(std::cos(low));
            if (p < 256) fine[2 * (p * kPairs + i) + 1] = float(std::sin(low));
            coarse[2 * (p * kPairs + i)] = float(std::cos(high));
            coarse[2 * (p * kPairs + i) + 1] = float(std::sin(high));
        }
    }
    const struct {
        uint64_t x, y, positions, fine, coarse;
        uint32_t rows, heads, dim, pairs;
        float sign;
        uint32_t first, behind, padding;
    } args{Address(x.data()),
           Address(y.data()),
           Address(positions),
           Address(fine.data()),
           Address(coarse.data()),
           kRows,
           kHeads,
           kDim,
           kPairs,
           1.0f,
           0,
           0,
           0};
    EmulatedKernel("rope", {{0, 64}}, subgroup(), GetParam()).Run(args, kRows, 3);
    for (size_t i = 0; i < x.size(); ++i) {
        const uint32_t dim = i % kDim, pair = dim % kPairs;
        double want = x[i];
        if (dim < 2 * kPairs) {
            const double angle = positions[i / (kHeads * kDim)] * frequency(pair);
            const double other = x[dim < kPairs ? i + kPairs : i - kPairs];
            want = x[i] * std::cos(angle) + (dim < kPairs ? -other : other) * std::sin(angle);
        }
        // Two tables and two products of values up to 4, each rounded to 2^-24: below 2^-20.
        ASSERT_TRUE(std::abs(y[i] - want) <= 1e-6) << i;
    }
}

TEST_P(Emulated, NormDividesByRootOfMean) {
    constexpr uint32_t kUnits = 3, kCols = 1000;
    const auto x = Random(kUnits * kCols, 2), weight = Random(kCols, 3);
    std::vector<float> y(x.size());
    const struct {
        uint64_t x, weight, dy, y, squares, inverse, codes, scales, dsquares;
        uint32_t units, cols, x_stride, squares_stride, y_stride, weights;
        float whole, eps;
        uint32_t square;
    } args{Address(x.data()),
           Address(weight.data()),
           0,
           Address(y.data()),
           0,
           0,
           0,
           0,
           0,
           kUnits,
           kCols,
           kCols,
           0,
           kCols,
           1,
           kCols,
           1e-5f,
           0};
    for (const uint32_t threads : {16u, 256u}) {
        EmulatedKernel("norm", {{0, threads}}, subgroup(), GetParam()).Run(args, 2);
        for (uint32_t i = 0; i < x.size(); ++i) {
            double squares = 0;
            const float* row = x.data() + i / kCols * kCols;
            for (uint32_t c = 0; c < kCols; ++c) squares += double(row[c]) * row[c];
            const double want = x[i] / std::sqrt(squares / kCols + 1e-5) * weight[i % kCols];
            // At most 63 + 8 additions of positive terms and 4 roundings, of a value below 16.
            ASSERT_TRUE(std::abs(y[i] - want) <= 16 * 75 * 0x1p-24 * std::abs(want) + 1e-30) << i;
        }
    }
}

TEST_P(Emulated, CopyTakesListedRows) {
    constexpr uint32_t kRows = 6, kCols = 40;
    const auto x = Random(kRows * kCols, 4);
    const int32_t list[] = {3, 0, 5};
    std::vector<float> y(3 * 16, -1);
    const struct {
        uint64_t x, y, list;
        uint32_t x_rows, x_cols, y_rows, y_cols;
        int32_t shift, first_row;
    } args{Address(x.data()), Address(y.data()), Address(list), kRows, kCols, 3, 16, 4, 0};
    EmulatedKernel("copy", {{0, 64}, {1, 1}}, subgroup(), GetParam()).Run(args, 1);
    for (uint32_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], x[list[i / 16] * kCols + i % 16 + 4]) << i;
    }
}

struct GemmArgs {
    uint64_t a, b, c, a_peaks, b_peaks, plan, factors;
    uint32_t a_stride, b_stride, c_stride, m, n, k, split, accumulate, matrix_rows;
    uint32_t a_used, b_used, groups, a_count, b_count, padding[4];
};

// Products in the three layouts of gemm.comp.
class Gemm {
  public:
    static constexpr uint32_t kM = 40, kN = 52, kK = 72;
    explicit Gemm(uint32_t form) : form_(form), a_(Random(kM * kK, 5)), b_(Random(kN * kK, 6)) {}

    // round: of an operand, before the product.
    template <class Round>
    void Check(const EmulatedKernel& kernel, uint32_t tile, Round round) const {
        std::vector<float> c(kM * kN), a_peaks(kM), b_peaks(kN);
        for (uint32_t i = 0; i < kM * kK; ++i) {
            float& peak = a_peaks[form_ == 2 ? i % kM : i / kK];
            peak = std::max(peak, std::abs(a_[i]));
        }
        for (uint32_t i = 0; i < kN * kK; ++i) {
            float& peak = b_peaks[form_ == 0 ? i / kK : i % kN];
            peak = std::max(peak, std::abs(b_[i]));
        }
        GemmArgs args{};
        args.a = Address(a_.data());
        args.b = Address(b_.data());
        args.c = Address(c.data());
        args.a_peaks = Address(a_peaks.data());
        args.b_peaks = Address(b_peaks.data());
        args.a_stride = form_ == 2 ? kM : kK;
        args.b_stride = form_ == 0 ? kK : kN;
        args.c_stride = args.n = args.b_count = kN;
        args.m = args.a_count = kM;
        args.k = args.split = kK;
        args.a_used = args.b_used = 1;
        args.groups = 1 | 1 << 16;
        kernel.Run(args, (kN + tile - 1) / tile, (kM + tile - 1) / tile);
        for (uint32_t i = 0; i < kM * kN; ++i) {
            double want = 0, size = 0;
            for (uint32_t k = 0; k < kK; ++k) {
                const double x = round(form_ == 2 ? a_[k * kM + i / kN] : a_[i / kN * kK + k]);
                const double y = round(form_ == 0 ? b_[i % kN * kK + k] : b_[k * kN + i % kN]);
                want += x * y;
                size += std::abs(x * y);
            }
            // One chain of kK products.
            ASSERT_TRUE(std::abs(c[i] - want) <= (kK + 1) * 0x1p-24 * size) << form_ << " " << i;
        }
    }

  private:
    const uint32_t form_;
    const std::vector<float> a_, b_;
};

TEST_P(Emulated, GemmMultiplies) {
    for (const uint32_t form : {0u, 1u, 2u}) {
        const EmulatedKernel kernel("gemm", {{0, 256}, {3, form}, {7, 7}}, subgroup(), GetParam());
        Gemm(form).Check(kernel, 64, [](float x) { return x; });
        // In another order of invocations: a barrier that is missing would show.
        ::setenv("WEFT_EMULATED_REVERSED", "1", 1);
        Gemm(form).Check(kernel, 64, [](float x) { return x; });
        ::unsetenv("WEFT_EMULATED_REVERSED");
    }
}

// The matrices of a subgroup, in all layouts of memory.
TEST_P(Emulated, GemmMultipliesMatrices) {
    if (shaders::Find("gemm_matrix").empty()) GTEST_SKIP() << "glslc has no cooperative matrices";
    for (const uint32_t form : {0u, 1u, 2u}) {
        const EmulatedKernel kernel(
            "gemm_matrix",
            {{0, 4 * subgroup()}, {1, 32}, {2, 32}, {3, form}, {7, 7}, {10, 32}, {11, 4}},
            subgroup(), GetParam());
        // Operands of normal size keep 11 bits.
        Gemm(form).Check(kernel, 32, [](float x) { return F16ToF32(F32ToF16(x)); });
    }
}

}  // namespace
}  // namespace weft::test
