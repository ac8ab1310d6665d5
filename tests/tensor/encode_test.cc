// The searching encoders against ggml's errors (tools/make_encode_golden.py), against the plain
// rounding of quant.h, and the CPU levels against each other.
#include "tensor/encode.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft {
namespace {

struct Golden {
    int64_t cols = 0, rows = 0;
    std::vector<float> x, importance;
    struct Row {
        DType dtype;
        double plain, weighed;
    };
    std::vector<Row> types;
};

template <typename T>
T Take(const std::vector<char>& data, size_t& at) {
    T value;
    EXPECT_LE(at + sizeof value, data.size());
    std::memcpy(&value, &data[at], sizeof value);
    at += sizeof value;
    return value;
}

Golden ReadGolden() {
    std::ifstream file(support::TestData("/encode_golden.bin"), std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    Golden golden;
    size_t at = 0;
    golden.cols = Take<uint32_t>(data, at);
    golden.rows = Take<uint32_t>(data, at);
    for (int64_t i = 0; i < golden.cols * golden.rows; ++i) {
        golden.x.push_back(F16ToF32(Take<uint16_t>(data, at)));
    }
    for (int64_t i = 0; i < golden.cols; ++i) golden.importance.push_back(Take<float>(data, at));
    const auto count = Take<uint32_t>(data, at);
    for (uint32_t i = 0; i < count; ++i) {
        const auto dtype = DTypeOfGguf(Take<uint32_t>(data, at));
        const auto plain = Take<double>(data, at);
        golden.types.push_back({dtype.value(), plain, Take<double>(data, at)});
    }
    return golden;
}

std::vector<std::byte> Encoded(DType dtype, const Golden& golden, std::span<const float> importance,
                               CpuLevel level = BestCpuLevel(DetectCpu())) {
    std::vector<std::byte> blocks(static_cast<size_t>(RowBytes(dtype, golden.cols * golden.rows)));
    Encode({dtype, golden.cols, golden.x, importance, blocks}, level);
    return blocks;
}

// The root of the weighted mean square error, divided by that of the weights.
double ErrorOf(DType dtype, const Golden& golden, std::span<const std::byte> blocks,
               std::span<const float> importance) {
    std::vector<float> y(golden.x.size());
    DequantizeRow(dtype, blocks, y);
    double off = 0, all = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        const double w = importance.empty() ? 1 : importance[i % static_cast<size_t>(golden.cols)];
        const double x = golden.x[i], d = x - y[i];
        off += w * d * d;
        all += w * x * x;
    }
    return std::sqrt(off / all);
}

TEST(Encode, ErrorIsAtMostThatOfGgml) {
    const Golden golden = ReadGolden();
    size_t checked = 0;
    for (const Golden::Row& row : golden.types) {
        if (!CanEncode(row.dtype)) continue;
        ++checked;
        const double plain = ErrorOf(row.dtype, golden, Encoded(row.dtype, golden, {}), {});
        EXPECT_LE(plain, 1.005 * row.plain) << Info(row.dtype).name;
        const double weighed = ErrorOf(
            row.dtype, golden, Encoded(row.dtype, golden, golden.importance), golden.importance);
        // Codebooks are searched completely; ggml only searches near the rounded weights.
        const bool book = !CanQuantize(row.dtype);
        EXPECT_LE(weighed, (book ? 0.97 : 1.02) * row.weighed) << Info(row.dtype).name;
        EXPECT_GT(weighed, 0.5 * row.weighed) << Info(row.dtype).name << ": too good to be true";
    }
    EXPECT_GE(checked, 20u);
}

// Least squares cannot be worse than rounding with a scale that it has tried; but blocks favor
// large weights, which may increase the unweighted error a little.
TEST(Encode, ErrorIsAtMostThatOfPlainRounding) {
    const Golden golden = ReadGolden();
    for (const DTypeInfo& info : kFileDTypes) {
        if (!CanQuantize(info.dtype)) continue;
        const std::vector<std::byte> blocks = Encoded(info.dtype, golden, {});
        std::vector<std::byte> plain(blocks.size());
        for (int64_t r = 0; r < golden.rows; ++r) {
            const auto bytes = static_cast<size_t>(RowBytes(info.dtype, golden.cols));
            const auto row = static_cast<size_t>(r), cols = static_cast<size_t>(golden.cols);
            QuantizeRow(info.dtype, std::span(golden.x).subspan(row * cols, cols),
                        std::span(plain).subspan(row * bytes, bytes));
        }
        EXPECT_LE(ErrorOf(info.dtype, golden, blocks, {}),
                  1.001 * ErrorOf(info.dtype, golden, plain, {}))
            << info.name;
    }
}

// Rows of one and of many blocks, with and without importance weights, and partial packs of 16
// groups.
TEST(Encode, AllLevelsGiveTheSameBits) {
    std::mt19937 random(5);
    std::student_t_distribution<float> heavy(4);
    for (const DTypeInfo& info : kFileDTypes) {
        if (!CanEncode(info.dtype)) continue;
        for (const int64_t blocks : {1, 3, 17}) {
            Golden data;
            data.rows = 3;
            data.cols = blocks * std::max<int64_t>(info.block_elements, 32);
            for (int64_t i = 0; i < data.rows * data.cols; ++i) data.x.push_back(heavy(random));
            for (int64_t i = 0; i < data.cols; ++i) {
                data.importance.push_back(std::exp(heavy(random) * 0.3f));
            }
            for (const bool weighed : {false, true}) {
                const auto importance =
                    weighed ? std::span<const float>(data.importance) : std::span<const float>();
                const auto expected =
                    Encoded(info.dtype, data, importance, UsableCpuLevels(DetectCpu()).front());
                for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
                    EXPECT_EQ(expected, Encoded(info.dtype, data, importance, level))
                        << info.name << " " << CpuLevelName(level) << " " << blocks;
                }
            }
        }
    }
}

// Exactly representable values survive: quantizing twice changes nothing. Types with several
// integers per block find another, equally good representation.
TEST(Encode, RoundedWeightsAreReproduced) {
    const Golden golden = ReadGolden();
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_0, DType::kQ5_0, DType::kQ8_0,
                              DType::kQ4_1, DType::kMXFP4, DType::kTQ1_0, DType::kTQ2_0}) {
        Golden once = golden;
        DequantizeRow(dtype, Encoded(dtype, golden, {}), once.x);
        const double error = ErrorOf(dtype, once, Encoded(dtype, once, {}), {});
        EXPECT_LE(error, 1e-3) << Info(dtype).name;
    }
}

TEST(Encode, ZerosConstantsAndExtremeFloats) {
    const float wild[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-45f, 0.0f, -0.0f};
    for (const DTypeInfo& info : kFileDTypes) {
        if (!CanEncode(info.dtype)) continue;
        for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
            Golden data;
            data.cols = 512;
            data.rows = 1;
            data.x.assign(512, 0.0f);
            std::vector<float> y(512, 1.0f);
            DequantizeRow(info.dtype, Encoded(info.dtype, data, {}, level), y);
            for (const float value : y) EXPECT_EQ(value, 0.0f) << info.name;
            for (const float constant : {0.75f, -0.75f}) {
                data.x.assign(512, constant);
                DequantizeRow(info.dtype, Encoded(info.dtype, data, {}, level), y);
                // MXFP4 has 0.75 exactly; 2^-8 is the error of bf16 and of Q8_0's steps.
                for (const float value : y) EXPECT_NEAR(value, constant, 0.003) << info.name;
            }
            for (size_t i = 0; i < 512; ++i) data.x[i] = wild[i * 7 % 8];
            DequantizeRow(info.dtype, Encoded(info.dtype, data, {}, level), y);  // must not trap
        }
    }
}

TEST(Encode, DecodesAsDequantizeRow) {
    std::mt19937 random(6);
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kQ4_K}) {
        std::vector<std::byte> raw(static_cast<size_t>(RowBytes(dtype, 256 * 7)));
        for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
        std::vector<float> expected(256 * 7), found(256 * 7);
        DequantizeRow(dtype, raw, expected);
        for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
            Decode(dtype, raw, found, level);
            for (size_t i = 0; i < found.size(); ++i) {
                if (std::isnan(expected[i])) {
                    EXPECT_TRUE(std::isnan(found[i]));
                } else {
                    EXPECT_EQ(expected[i], found[i]);
                }
            }
        }
    }
}

}  // namespace
}  // namespace weft
