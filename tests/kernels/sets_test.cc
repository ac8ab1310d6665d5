// Pins the bits of sets with vectors of eight lanes, on AVX2, AVX-VNNI, NEON and i8mm. Products of
// quantized weights have the same bits on all other sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "kernels/kernels.h"
#include "kernels/recurrent.h"
#include "kernels/sparse.h"
#include "model_files/synthetic_weights.h"
#include "support/cpu_levels.h"

namespace weft::kernels {
namespace {

// `count` numbers in (-1, 1) that do not depend on a library.
std::vector<float> Numbers(uint32_t seed, int64_t count) {
    uint64_t state = seed * 2 + 1;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto whole = static_cast<int32_t>(state >> 40) - (1 << 23);
        value = std::ldexp(static_cast<float>(whole), -23);
    }
    return values;
}

template <typename T>
uint32_t Sum(const std::vector<T>& values) {
    return Crc32c(std::as_bytes(std::span(values)));
}

struct Free {
    void operator()(void* data) const { std::free(data); }
};
using Memory = std::unique_ptr<std::byte, Free>;
Memory Aligned(int64_t bytes) {
    const auto size = static_cast<size_t>((bytes + 63) / 64 * 64);
    return Memory(static_cast<std::byte*>(std::aligned_alloc(64, size)));
}

// A weight of 37 x 768 for three tokens: as floats with a bias, and as doubles without.
uint32_t Product(const Kernels& kernels, DType dtype) {
    constexpr int64_t kRows = 37, kCols = 768, kTokens = 3;
    std::vector<std::byte> blocks(static_cast<size_t>(kRows * RowBytes(dtype, kCols)));
    model_files::RandomRow(dtype, 7, kRows * kCols, 0, 0, kRows * kCols, blocks);
    const Memory packed = Aligned(kernels.packed_bytes(dtype, kRows, kCols));
    MatMulArgs args;
    args.weight = {dtype, kRows, kCols, packed.get()};
    kernels.pack(args.weight, 0, kRows, blocks.data(), RowBytes(dtype, kCols));
    const std::vector<float> x = Numbers(1, kTokens * kCols), bias = Numbers(2, kRows);
    const Memory quantized = Aligned(kTokens * kernels.quantized_bytes(kCols));
    const ActivationFormat as = kernels.activation_format(dtype);
    if (as != ActivationFormat::kNone) {
        kernels.quantize_activations({x.data(), kCols, kTokens, kCols, quantized.get(), as}, 0, 1);
    }
    std::vector<float> y(kTokens * kRows);
    std::vector<double> wide(y.size());
    args.x = x.data();
    args.x_stride = kCols;
    args.quantized = quantized.get();
    args.rows = kTokens;
    args.y_stride = kRows;
    args.y = y.data();
    args.bias = bias.data();
    kernels.matmul(args, 0, 1);
    args.y = nullptr;
    args.bias = nullptr;
    args.wide = wide.data();
    kernels.matmul(args, 0, 1);
    return Sum(y) ^ Sum(wide);
}

uint32_t DenseProduct(const Kernels& kernels, dense::Compute compute) {
    const std::vector<float> a = Numbers(50, 45 * 400), b = Numbers(51, 400 * 70);
    std::vector<float> c(45 * 70);
    dense::GemmArgs args{{a.data(), 400, 1}, {b.data(), 70, 1}, {c.data(), 70}, 45, 70, 400};
    args.compute = compute;
    std::vector<std::byte> scratch(static_cast<size_t>(kernels.gemm_scratch_bytes(args)));
    kernels.gemm(args, scratch, 0, 1);
    return Sum(c);
}

// Two sequences, of 270 and 30 rows; four query heads of 40 share two KV heads.
uint32_t Causal(const Kernels& kernels, dense::Compute compute) {
    const std::vector<float> q = Numbers(60, 300 * 160), k = Numbers(61, 300 * 80);
    const std::vector<float> v = Numbers(62, 300 * 80);
    std::vector<float> out(q.size()), lse(4 * 300);
    const Sequence sequences[] = {{0, 270, 0, {}}, {270, 30, 0, {}}};
    dense::CausalArgs args;
    args.sequences = sequences;
    args.q = {q.data(), 160};
    args.k = {k.data(), 80};
    args.v = {v.data(), 80};
    args.heads = 4, args.kv_heads = 2, args.head_dim = 40, args.group = 2;
    args.scale = 0.15f;
    args.out = {out.data(), 160};
    args.lse = lse.data();
    args.lse_stride = 300;
    args.compute = compute;
    std::vector<std::byte> scratch(static_cast<size_t>(kernels.causal_scratch_bytes(args)));
    kernels.causal(args, scratch, 0, 1);
    return Sum(out);
}

const std::map<std::string, uint32_t, std::less<>> kFloatProducts = {
    {"F32", 0x69835471}, {"F16", 0xc2f268b3}, {"BF16", 0x833f2cc4}};
const std::map<std::string, uint32_t, std::less<>> kQuantizedProducts = {
    {"Q4_0", 0x15748b73},    {"Q4_1", 0xea417223},   {"Q5_0", 0x47013f8e},
    {"Q5_1", 0xc75fb22e},    {"Q8_0", 0x9cec2401},   {"Q2_K", 0x6b940cc7},
    {"Q3_K", 0x30baff41},    {"Q4_K", 0x0df835d8},   {"Q5_K", 0x140051d5},
    {"Q6_K", 0x1f58037a},    {"IQ1_S", 0x4221f8ec},  {"IQ1_M", 0x197b3143},
    {"IQ2_XXS", 0x91d2d78c}, {"IQ2_XS", 0x03d123f1}, {"IQ2_S", 0x376fab2f},
    {"IQ3_XXS", 0x44956d08}, {"IQ3_S", 0x21f42834},  {"IQ4_NL", 0x784b13aa},
    {"IQ4_XS", 0x55273b9e},  {"TQ1_0", 0x59673b2b},  {"TQ2_0", 0x0519d9a6},
    {"MXFP4", 0x220a6033}};

constexpr CpuLevel kOfEight[] = {CpuLevel::kAvx2, CpuLevel::kAvxVnni, CpuLevel::kNeon,
                                 CpuLevel::kI8mm};

TEST(Sets, ProductsOfWeights) {
    for (const CpuLevel level : weft::test::TestedCpuLevels()) {
        if (level == CpuLevel::kReference) continue;
        const bool eight = std::ranges::count(kOfEight, level) != 0;
        const Kernels& kernels = KernelsFor(level);
        for (const DTypeInfo& info : kFileDTypes) {
            const auto& known = info.quantized ? kQuantizedProducts : kFloatProducts;
            const auto found = known.find(info.name);
            if (found == known.end() || !(eight || info.quantized)) continue;
            EXPECT_EQ(Product(kernels, info.dtype), found->second)
                << CpuLevelName(level) << " " << info.name;
        }
    }
}

TEST(Sets, DenseProductsAndAttention) {
    for (const CpuLevel level : weft::test::TestedCpuLevels()) {
        if (std::ranges::count(kOfEight, level) == 0) continue;
        const Kernels& kernels = KernelsFor(level);
        EXPECT_EQ(DenseProduct(kernels, dense::Compute::kF32), 0x42de9affu);
        EXPECT_EQ(DenseProduct(kernels, dense::Compute::kBf16), 0xa27f9cd7u);
        EXPECT_EQ(Causal(kernels, dense::Compute::kF32), 0xc0b9bd4au);
        EXPECT_EQ(Causal(kernels, dense::Compute::kBf16), 0x4f812608u);
    }
}

// AVX-VNNI differs from AVX2 only in products with quantized weights.
TEST(Sets, AvxVnniHasTheOtherKernelsOfAvx2) {
    if (!IsBuilt(CpuLevel::kAvxVnni)) GTEST_SKIP() << "kernels for another processor";
    const Kernels &own = KernelsFor(CpuLevel::kAvxVnni), &avx2 = KernelsFor(CpuLevel::kAvx2);
    EXPECT_EQ(own.level, CpuLevel::kAvxVnni);
    EXPECT_NE(own.matmul, avx2.matmul);
    EXPECT_EQ(own.pack, avx2.pack);
    EXPECT_EQ(own.gemm, avx2.gemm);
    EXPECT_EQ(own.causal, avx2.causal);
    EXPECT_EQ(own.attention, avx2.attention);
    EXPECT_EQ(own.delta_rule, avx2.delta_rule);
    EXPECT_EQ(own.block_attention, avx2.block_attention);
    EXPECT_EQ(own.latent_attention, avx2.latent_attention);
    EXPECT_EQ(own.adapt_down, avx2.adapt_down);
}

}  // namespace
}  // namespace weft::kernels
