// Planes hold the same weights as blocks: a mirror of src/shaders/types.glsl, in C++, gives the
// floats of DequantizeRow, bit by bit. No device is needed.
#include "backend/gpu/dispatch/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/half.h"
#include "tensor/quant_bytes.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

// A row's planes, like the shader's WeightRow.
struct PlanesOfRow {
    std::vector<std::byte> bytes[WeightLayout::kMostPlanes];

    uint32_t Word(size_t plane, int64_t i) const {
        uint32_t word = 0;
        EXPECT_LE(static_cast<size_t>(4 * i + 4), bytes[plane].size());
        std::memcpy(&word, bytes[plane].data() + 4 * i, sizeof word);
        return word;
    }
    float Half(size_t plane, int64_t i) const {
        return F16ToF32(static_cast<uint16_t>(Word(plane, i / 2) >> 16 * (i % 2)));
    }
    int Byte(size_t plane, int64_t i) const {
        return static_cast<int>(Word(plane, i / 4) >> 8 * (i % 4) & 255);
    }
    int Signed(size_t plane, int64_t i) const { return static_cast<int8_t>(Byte(plane, i)); }
};

uint32_t EvenSignsOf(uint32_t bits) {
    return (bits & 127) | (static_cast<uint32_t>(std::popcount(bits & 127)) & 1) << 7;
}

// The codebook entry of element i, and signs or offset: as in grids.glsl.
struct GridEntry {
    uint32_t index = 0, signs = 0;
};
GridEntry GridEntryOf(DType dtype, const PlanesOfRow& row, int64_t i) {
    const int64_t unit = i / 32;
    const int64_t g = i % 32 / 8, four = i % 32 / 4;
    const auto half = [&](size_t plane) { return row.Word(plane, unit / 2) >> 16 * (unit % 2); };
    const auto byte = [](uint32_t word, int64_t at) { return word >> 8 * at & 255; };
    switch (dtype) {
        case DType::kIQ1_S:
            return {byte(row.Word(0, unit), g) | (half(1) >> 3 * g & 7) << 8, half(1) >> 15 & 1};
        case DType::kIQ1_M:
            return {byte(row.Word(0, unit), g) | (half(1) >> 4 * g & 7) << 8,
                    half(1) >> (4 * g + 3) & 1};
        case DType::kIQ2_XXS:
            return {byte(row.Word(0, 2 * unit), g),
                    EvenSignsOf(row.Word(0, 2 * unit + 1) >> 7 * g)};
        case DType::kIQ2_XS: {
            const uint32_t word = row.Word(0, 2 * unit + g / 2) >> 16 * (g % 2) & 0xffff;
            return {word & 511, EvenSignsOf(word >> 9)};
        }
        case DType::kIQ2_S:
            return {byte(row.Word(0, 2 * unit), g) | (half(1) >> 2 * g & 3) << 8,
                    byte(row.Word(0, 2 * unit + 1), g)};
        case DType::kIQ3_XXS:
            return {byte(row.Word(0, 3 * unit + four / 4), four % 4),
                    EvenSignsOf(row.Word(0, 3 * unit + 2) >> 7 * g)};
        case DType::kIQ3_S:
            return {byte(row.Word(0, 3 * unit + four / 4), four % 4) | (half(1) >> four & 1) << 8,
                    byte(row.Word(0, 3 * unit + 2), g)};
        default: ADD_FAILURE() << Info(dtype).name; return {};
    }
}
bool IsOfOne(DType dtype) {
    return dtype == DType::kIQ1_S || dtype == DType::kIQ1_M;
}
int GridInteger(DType dtype, const PlanesOfRow& row, int64_t i) {
    const GridEntry entry = GridEntryOf(dtype, row, i);
    const bool of_three = dtype == DType::kIQ3_XXS || dtype == DType::kIQ3_S;
    const int64_t each = of_three ? 4 : 8;
    const int value = row.Byte(3, entry.index * each + i % each);
    if (IsOfOne(dtype)) return value + (entry.signs != 0 ? 0 : 2) - 9;
    return (entry.signs >> i % 8 & 1) != 0 ? -value : value;
}
float GridScale(DType dtype, const PlanesOfRow& row, int64_t i) {
    const int64_t unit = i / 32, part = i / 16, block = i / 256;
    const auto f = [](uint32_t value) { return static_cast<float>(value); };
    const auto half = [&](size_t plane) { return row.Word(plane, unit / 2) >> 16 * (unit % 2); };
    const auto nibble = [&](uint32_t byte) { return f(byte >> part % 2 * 4 & 15); };
    switch (dtype) {
        case DType::kIQ1_S: return row.Half(2, block) * f(2 * (half(1) >> 12 & 7) + 1) * 0.125f;
        case DType::kIQ1_M: {
            uint32_t d = 0;
            for (int k = 0; k < 8; ++k) {
                d |= static_cast<uint32_t>(row.Byte(2, 8 * block + k) >> 6) << 2 * k;
            }
            const auto sub = static_cast<uint32_t>(row.Byte(2, unit)) >> part % 2 * 3 & 7;
            return F16ToF32(static_cast<uint16_t>(d)) * f(2 * sub + 1) * 0.125f;
        }
        case DType::kIQ2_XXS:
            return row.Half(1, block) * (0.5f + f(row.Word(0, 2 * unit + 1) >> 28)) * 0.25f;
        case DType::kIQ2_XS:
            return row.Half(2, block) * (0.5f + nibble(static_cast<uint32_t>(row.Byte(1, unit)))) *
                   0.25f;
        case DType::kIQ2_S: return row.Half(2, block) * (0.5f + nibble(half(1) >> 8 & 255)) * 0.25f;
        case DType::kIQ3_XXS:
            return row.Half(1, block) * (0.5f + f(row.Word(0, 3 * unit + 2) >> 28)) * 0.5f;
        case DType::kIQ3_S: return row.Half(2, block) * f(1 + 2 * (half(1) >> 8 & 255));
        default: ADD_FAILURE() << Info(dtype).name; return 0;
    }
}

struct ScaleAndOffset {
    float scale = 0, offset = 0;
};

// The scale and offset of element i.
ScaleAndOffset ScaleOf(DType dtype, const PlanesOfRow& row, int64_t i) {
    const auto f = [](int value) { return static_cast<float>(value); };
    const int64_t unit = i / 32, block = i / 256, part = i / 16;
    switch (dtype) {
        case DType::kQ4_0:
        case DType::kQ8_0:
        case DType::kIQ4_NL: return {row.Half(1, unit), 0};
        case DType::kQ5_0: return {row.Half(2, unit), 0};
        case DType::kQ4_1: return {row.Half(1, 2 * unit), row.Half(1, 2 * unit + 1)};
        case DType::kQ5_1: return {row.Half(2, 2 * unit), row.Half(2, 2 * unit + 1)};
        case DType::kTQ1_0:
        case DType::kTQ2_0: return {row.Half(1, block), 0};
        case DType::kMXFP4: {
            const auto e = static_cast<uint32_t>(row.Byte(1, unit));
            return {std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1) << 23), 0};
        }
        case DType::kW4: return {std::bit_cast<float>(row.Word(1, unit) & ~0xffu), 0};
        case DType::kW8: {
            const float scale = std::bit_cast<float>(row.Word(1, unit) & ~0xffu);
            const int rest = 128 - static_cast<int>(row.Word(1, unit) & 255);
            return {scale, rest == 0 ? 0.0f : f(rest) * scale};
        }
        case DType::kNVFP4: {
            const float scale = std::bit_cast<float>(row.Word(1, i / 64 * 2));
            return {scale * NvScale(static_cast<uint8_t>(row.Byte(1, i / 64 * 8 + 4 + part % 4))),
                    0};
        }
        case DType::kQ2_K: {
            const int sub = row.Byte(1, part);
            return {row.Half(2, 2 * block) * f(sub & 15),
                    -(row.Half(2, 2 * block + 1) * f(sub >> 4))};
        }
        case DType::kQ3_K:
        case DType::kQ6_K: return {row.Half(3, block) * f(row.Signed(2, part)), 0};
        case DType::kQ4_K:
        case DType::kQ5_K: {
            const size_t sub = dtype == DType::kQ4_K ? 1 : 2;
            return {row.Half(sub + 1, 2 * block) * f(row.Byte(sub, 2 * unit)),
                    -(row.Half(sub + 1, 2 * block + 1) * f(row.Byte(sub, 2 * unit + 1)))};
        }
        case DType::kIQ4_XS: return {row.Half(2, block) * f(row.Signed(1, unit)), 0};
        default: ADD_FAILURE() << Info(dtype).name; return {};
    }
}

// The integer code of element i.
int IntegerOf(DType dtype, const PlanesOfRow& row, int64_t i) {
    const int64_t unit = i / 32, four = i % 32 / 4, byte = i % 4;
    const auto bits = [&](size_t plane, int width) {
        const int64_t each = 8 / width, words = 8 / each;
        const uint32_t word = row.Word(plane, unit * words + four / each);
        const uint32_t mask = (1u << width) - 1;
        return static_cast<int>(word >> 8 * byte >> four % each * width & mask);
    };
    switch (dtype) {
        case DType::kQ4_0: return bits(0, 4) - 8;
        case DType::kQ4_1:
        case DType::kQ4_K: return bits(0, 4);
        case DType::kQ5_0: return (bits(0, 4) | bits(1, 1) << 4) - 16;
        case DType::kQ5_1:
        case DType::kQ5_K: return bits(0, 4) | bits(1, 1) << 4;
        case DType::kQ6_K: return (bits(0, 4) | bits(1, 2) << 4) - 32;
        case DType::kQ2_K: return bits(0, 2);
        case DType::kQ3_K: return (bits(0, 2) | bits(1, 1) << 2) - 4;
        case DType::kTQ1_0:
        case DType::kTQ2_0: return bits(0, 2) - 1;
        case DType::kQ8_0: return row.Signed(0, i);
        case DType::kW8: return row.Byte(0, i) - 128;
        case DType::kW4: return bits(0, 4) - static_cast<int>(row.Word(1, unit) & 255);
        case DType::kIQ4_NL:
        case DType::kIQ4_XS: return quant::kIq4Values[static_cast<size_t>(bits(0, 4))];
        case DType::kNVFP4:
        case DType::kMXFP4: return quant::kMxfp4Values[static_cast<size_t>(bits(0, 4))];
        default: ADD_FAILURE() << Info(dtype).name; return 0;
    }
}

float ElementOf(DType dtype, const PlanesOfRow& row, int64_t i) {
    if (dtype == DType::kF32) return std::bit_cast<float>(row.Word(0, i));
    if (dtype == DType::kF16) return row.Half(0, i);
    if (dtype == DType::kBF16) {
        return BF16ToF32(static_cast<uint16_t>(row.Word(0, i / 2) >> 16 * (i % 2)));
    }
    if (test::HasBook(dtype)) {
        return static_cast<float>(GridInteger(dtype, row, i)) * GridScale(dtype, row, i);
    }
    if (dtype == DType::kFP8) {
        return Fp8Value(static_cast<uint8_t>(row.Byte(0, i))) *
               std::bit_cast<float>(row.Word(1, i / 64));
    }
    const ScaleAndOffset s = ScaleOf(dtype, row, i);
    return static_cast<float>(IntegerOf(dtype, row, i)) * s.scale + s.offset;
}

PlanesOfRow PackedRow(DType dtype, int64_t cols, const std::byte* blocks) {
    const WeightLayout layout = LayoutOf(dtype, 1, cols);
    PlanesOfRow row;
    std::byte* out[WeightLayout::kMostPlanes] = {};
    for (size_t p = 0; p < layout.count; ++p) {
        row.bytes[p].assign(layout.planes[p].row_bytes + 16, std::byte{0xee});
        out[p] = row.bytes[p].data();
    }
    PackRow(dtype, cols, blocks, {out, layout.count});
    for (size_t p = 0; p < layout.count; ++p) {
        for (size_t i = layout.planes[p].row_bytes; i < row.bytes[p].size(); ++i) {
            EXPECT_EQ(row.bytes[p][i], std::byte{0xee}) << "wrote past a row";
        }
        row.bytes[p].resize(layout.planes[p].row_bytes);
    }
    if (layout.table_bytes != 0) {
        row.bytes[3].resize(layout.table_bytes);
        PackTable(dtype, row.bytes[3].data());
    }
    return row;
}

TEST(Weights, PlanesHoldTheBitsOfBlocks) {
    for (const DType dtype : test::TakenTypes()) {
        for (uint32_t seed = 0; seed < 4; ++seed) {
            const int64_t least = std::max<int64_t>(Info(dtype).block_elements, 5);
            const int64_t cols = least * (seed + 1);
            const test::RandomWeight weight(dtype, 3, cols, seed);
            for (int64_t r = 0; r < weight.rows; ++r) {
                const PlanesOfRow row =
                    PackedRow(dtype, cols, weight.blocks.data() + r * RowBytes(dtype, cols));
                for (int64_t i = 0; i < cols; ++i) {
                    const float expected = weight.Row(r)[static_cast<size_t>(i)];
                    ASSERT_EQ(std::bit_cast<uint32_t>(ElementOf(dtype, row, i)),
                              std::bit_cast<uint32_t>(expected))
                        << Info(dtype).name << " seed " << seed << " row " << r << " element " << i;
                }
            }
        }
    }
}

TEST(Weights, PaddingIsZeros) {
    const test::RandomWeight weight(DType::kF16, 1, 5, 2);
    const PlanesOfRow row = PackedRow(DType::kF16, 5, weight.blocks.data());
    ASSERT_EQ(row.bytes[0].size(), 16u);
    for (size_t i = 10; i < 16; ++i) EXPECT_EQ(row.bytes[0][i], std::byte{0});
}

// Bytes that a product reads: at most 6 % more than the file has; for TQ1_0, compared with TQ2_0.
TEST(Weights, HaveTheBytesOfTheFile) {
    for (const DType dtype : test::TakenTypes()) {
        const int64_t rows = 1024, cols = 4096;
        const WeightLayout layout = LayoutOf(dtype, rows, cols);
        const DType as = dtype == DType::kTQ1_0 ? DType::kTQ2_0 : dtype;
        const auto file = static_cast<double>(rows * RowBytes(as, cols));
        EXPECT_LE(static_cast<double>(layout.bytes), 1.06 * file) << Info(dtype).name;
        for (size_t p = 0; p < layout.count; ++p) {
            EXPECT_EQ(layout.planes[p].offset % 256, 0u);
            EXPECT_EQ(layout.planes[p].row_bytes % 16, 0u);
        }
    }
}

TEST(Weights, OtherTypesAreRefusedByName) {
    const Status status = CheckWeightType(DType::kF64, 256);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find("F64"), std::string::npos);
    EXPECT_FALSE(CheckWeightType(DType::kQ4_K, 128).ok());
}

}  // namespace
}  // namespace weft::backend::on_gpu
