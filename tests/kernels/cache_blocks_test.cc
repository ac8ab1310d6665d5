// Blocks of a KV cache: the bytes of llama.cpp's quantize_row_*_ref, in K and in V, whatever was in
// the page before; attention of every type at every level, beside one query and beside many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cstring>

#include "kernels/cache_blocks.h"
#include "support/attention_case.h"
#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::kernels::test {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ8_0, DType::kQ5_1, DType::kQ4_0};

using Bytes = std::vector<uint8_t>;

void PutHalf(Bytes& to, float value) {
    const uint16_t half = F32ToF16(value);
    to.push_back(static_cast<uint8_t>(half & 255));
    to.push_back(static_cast<uint8_t>(half >> 8));
}

// The three functions below repeat quantize_row_q8_0_ref, quantize_row_q4_0_ref and
// quantize_row_q5_1_ref of llama.cpp (ggml/src/ggml-quants.c, August 2026) for one block.
Bytes LlamaQ8_0(const float* x) {
    float amax = 0.0f;
    for (int j = 0; j < 32; j++) amax = std::max(amax, fabsf(x[j]));
    const float d = amax / ((1 << 7) - 1);
    const float id = d != 0 ? 1.0f / d : 0.0f;
    Bytes y;
    PutHalf(y, d);
    for (int j = 0; j < 32; ++j) {
        y.push_back(static_cast<uint8_t>(static_cast<int8_t>(roundf(x[j] * id))));
    }
    return y;
}

Bytes LlamaQ4_0(const float* x) {
    float amax = 0.0f, max = 0.0f;
    for (int j = 0; j < 32; j++) {
        const float v = x[j];
        if (amax < fabsf(v)) {
            amax = fabsf(v);
            max = v;
        }
    }
    const float d = max / -8;
    const float id = d != 0 ? 1.0f / d : 0.0f;
    Bytes y;
    PutHalf(y, d);
    for (int j = 0; j < 16; ++j) {
        const float x0 = x[0 + j] * id, x1 = x[16 + j] * id;
        const auto xi0 = static_cast<uint8_t>(std::min(15, int{static_cast<int8_t>(x0 + 8.5f)}));
        const auto xi1 = static_cast<uint8_t>(std::min(15, int{static_cast<int8_t>(x1 + 8.5f)}));
        y.push_back(static_cast<uint8_t>(xi0 | xi1 << 4));
    }
    return y;
}

Bytes LlamaQ5_1(const float* x) {
    float min = FLT_MAX, max = -FLT_MAX;
    for (int j = 0; j < 32; j++) {
        const float v = x[j];
        if (v < min) min = v;
        if (v > max) max = v;
    }
    const float d = (max - min) / ((1 << 5) - 1);
    const float id = d != 0 ? 1.0f / d : 0.0f;
    Bytes y;
    PutHalf(y, d);
    PutHalf(y, min);
    uint32_t qh = 0;
    Bytes qs;
    for (int j = 0; j < 16; ++j) {
        const float x0 = (x[0 + j] - min) * id, x1 = (x[16 + j] - min) * id;
        const auto xi0 = static_cast<uint8_t>(x0 + 0.5f), xi1 = static_cast<uint8_t>(x1 + 0.5f);
        qs.push_back(static_cast<uint8_t>((xi0 & 0x0F) | ((xi1 & 0x0F) << 4)));
        qh |= ((xi0 & 0x10u) >> 4) << (j + 0);
        qh |= ((xi1 & 0x10u) >> 4) << (j + 16);
    }
    for (int i = 0; i < 4; ++i) y.push_back(static_cast<uint8_t>(qh >> 8 * i));
    y.insert(y.end(), qs.begin(), qs.end());
    return y;
}

Bytes Llama(DType dtype, const float* x) {
    if (dtype == DType::kQ8_0) return LlamaQ8_0(x);
    return dtype == DType::kQ4_0 ? LlamaQ4_0(x) : LlamaQ5_1(x);
}

// Rows with ties, a peak of either sign, zeros, equal values, and magnitudes from f16's denormals
// to its largest.
std::vector<float> HardRow(Random& random) {
    std::vector<float> row = random.Normals(32, std::exp2(static_cast<float>(random.Int(-24, 14))));
    const int64_t kind = random.Int(0, 5);
    for (float& value : row) {
        if (kind == 0) value = static_cast<float>(random.Int(-16, 16)) / 2;
        if (kind == 1) value = 0;
        if (kind == 2) value = row[0];
        if (kind == 3) value = std::fabs(value);
    }
    if (kind == 4) row[static_cast<size_t>(random.Int(0, 31))] = -row[0];
    return row;
}

TEST(CacheBlocks, HaveTheBitsOfLlamaCpp) {
    Random random(1);
    for (int number = 0; number < 4000; ++number) {
        const std::vector<float> row = HardRow(random);
        for (const DType dtype : kBlockTypes) {
            const Bytes expected = Llama(dtype, row.data());
            std::byte block[kMostCacheBlockBytes];
            EncodeCacheBlock(dtype, row.data(), block);
            ASSERT_EQ(static_cast<int64_t>(expected.size()), Info(dtype).block_bytes);
            ASSERT_EQ(std::memcmp(block, expected.data(), expected.size()), 0)
                << Info(dtype).name << " row " << number;
        }
    }
}

// A block with a NaN is NaN, wherever it is, as llama.cpp's would not be.
TEST(CacheBlocks, HoldNaN) {
    Random random(2);
    for (const DType dtype : kBlockTypes) {
        for (size_t at = 0; at < 32; ++at) {
            std::vector<float> row = random.Normals(32), read(32);
            row[at] = std::copysign(std::numeric_limits<float>::quiet_NaN(), row[at]);
            std::byte block[kMostCacheBlockBytes];
            EncodeCacheBlock(dtype, row.data(), block);
            DequantizeRow(
                dtype, std::span(block).first(static_cast<size_t>(Info(dtype).block_bytes)), read);
            EXPECT_TRUE(std::ranges::all_of(read, [](float x) { return std::isnan(x); }))
                << Info(dtype).name << " element " << at;
        }
    }
}

AttentionShape ShapeOf(DType keys, DType values, int64_t head_dim, int64_t rows) {
    AttentionShape shape;
    shape.dtype = keys;
    shape.value_dtype = values;
    shape.head_dim = head_dim;
    shape.heads = shape.group = 3;
    shape.page_tokens = 128;
    shape.sequences = {{131, rows}, {0, 3}};
    return shape;
}

// Each pair of types, with one query and with many of a KV head.
TEST(CacheBlocks, EveryPairOfTypesEqualsThePlainFormula) {
    constexpr DType kTypes[] = {DType::kF16,  DType::kBF16, DType::kF32,
                                DType::kQ8_0, DType::kQ5_1, DType::kQ4_0};
    uint32_t number = 0;
    for (const Ops& ops : OpLevels()) {
        const bool brain = ops.activation_format(DType::kBF16) == ActivationFormat::kBF16;
        for (const DType keys : kTypes) {
            for (const DType values : kTypes) {
                for (const int64_t rows : {1, 12}) {
                    const int64_t head_dim = number % 2 == 0 ? 64 : 96;
                    const AttentionShape shape = ShapeOf(keys, values, head_dim, rows);
                    const AttentionCase problem(shape, number++);
                    problem.WriteAll(ops);
                    std::vector<double> expected, bound;
                    problem.Expected(&expected, &bound,
                                     {brain && keys == DType::kBF16 ? 0x1p-9 : 0,
                                      brain && values == DType::kBF16 ? 0x1p-9 : 0});
                    const std::vector<float> got = problem.Attend(ops, problem.sequences(), 2);
                    for (size_t i = 0; i < got.size(); ++i) {
                        ASSERT_FALSE(!(std::fabs(got[i] - expected[i]) <= bound[i]))
                            << ops.name << " " << Info(keys).name << " and " << Info(values).name
                            << ", " << rows << " rows, element " << i;
                    }
                }
            }
        }
    }
}

// Writing tokens again, in the middle of a page, gives the bytes of writing them once, and changes
// no other token.
TEST(CacheBlocks, RewrittenPagesHoldTheSameBytes) {
    for (const Ops& ops : OpLevels()) {
        for (const DType keys : kBlockTypes) {
            for (const DType values : kBlockTypes) {
                const AttentionShape shape = ShapeOf(keys, values, 64, 30);
                const AttentionCase once(shape, 5), again(shape, 5);
                once.WriteAll(ops);
                again.Write(ops, 0, 0, 161);
                again.Write(ops, 1, 0, 3);
                again.Write(ops, 0, 67, 140, 3);  // (a rejected draft, or a page that is reused)
                again.Write(ops, 0, 127, 129);
                EXPECT_TRUE(once.k_bytes() == again.k_bytes()) << ops.name;
                EXPECT_TRUE(once.v_bytes() == again.v_bytes()) << ops.name;
            }
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
