// Weights of every type for tests of their products: random, packed and multiplied, with error
// bounds against exact arithmetic.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "model_files/synthetic_weights.h"
#include "support/cpu_levels.h"
#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::kernels::test {

struct MatmulAligned {
    explicit MatmulAligned(int64_t bytes)
        : size(static_cast<size_t>((bytes + 127) / 64 * 64)),
          data(static_cast<std::byte*>(std::aligned_alloc(64, size)), &std::free) {
        std::memset(data.get(), 0xee, size);
    }
    size_t size;
    std::unique_ptr<std::byte, decltype(&std::free)> data;
};

inline std::vector<DType> WeightTypes() {
    std::vector<DType> types;
    for (const DTypeInfo& info : kFileDTypes) {
        if (info.dtype != DType::kI32) types.push_back(info.dtype);
    }
    types.push_back(DType::kW4);
    types.push_back(DType::kW8);
    types.push_back(DType::kNVFP4);
    types.push_back(DType::kFP8);
    return types;
}

inline std::vector<float> RandomFloats(std::mt19937& random, int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
}

// A random weight: the file's blocks and their dequantized floats.
struct Weight {
    Weight(std::mt19937& random, DType type, int64_t row_count, int64_t col_count)
        : dtype(type), rows(row_count), cols(col_count) {
        const std::vector<float> values = RandomFloats(random, rows * cols);
        blocks.resize(static_cast<size_t>(rows * RowBytes(dtype, cols)));
        floats.resize(values.size());
        if (CanQuantize(dtype)) {
            QuantizeRow(dtype, values, blocks);
        } else {
            model_files::RandomRow(dtype, random(), rows * cols, 0, 0, rows * cols, blocks);
        }
        DequantizeRow(dtype, blocks, floats);
    }
    DType dtype;
    int64_t rows, cols;
    std::vector<std::byte> blocks;
    std::vector<float> floats;
};

// Packs in chunks of rows, last chunk first: the order must not matter.
struct Packed {
    Packed(const Kernels& kernels, const Weight& weight)
        : memory(kernels.packed_bytes(weight.dtype, weight.rows, weight.cols)),
          matrix{weight.dtype, weight.rows, weight.cols, memory.data.get()} {
        const int64_t stride = RowBytes(weight.dtype, weight.cols);
        const int64_t chunk = 2 * kStripRows;
        for (int64_t row = (weight.rows - 1) / chunk * chunk; row >= 0; row -= chunk) {
            kernels.pack(matrix, row, std::min(chunk, weight.rows - row),
                         weight.blocks.data() + row * stride, stride);
        }
    }
    MatmulAligned memory;
    PackedMatrix matrix;
};

inline std::vector<float> Multiply(const Kernels& kernels, const Packed& weight,
                                   const std::vector<float>& x, int64_t tokens, int parts,
                                   const float* bias = nullptr, int64_t segment = 0) {
    const int64_t cols = weight.matrix.cols, rows = weight.matrix.rows;
    const ActivationFormat as = kernels.activation_format(weight.matrix.dtype);
    const bool quantizes = as != ActivationFormat::kNone;
    MatmulAligned quantized(quantizes ? tokens * kernels.quantized_bytes(cols) : 0);
    const QuantizeActivationsArgs quantize{x.data(), cols, tokens, cols, quantized.data.get(), as};
    for (int part = 0; quantizes && part < parts; ++part) {
        kernels.quantize_activations(quantize, part, parts);
    }
    const int64_t stride = rows + 3;
    std::vector<float> y(static_cast<size_t>(tokens * stride), NAN);
    const MatMulArgs args{weight.matrix, x.data(), cols,     quantized.data.get(),
                          tokens,        bias,     y.data(), segment,
                          nullptr,       stride};
    for (int part = parts - 1; part >= 0; --part) kernels.matmul(args, part, parts);
    std::vector<float> out;
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = rows; i < stride; ++i) {
            EXPECT_TRUE(std::isnan(y[static_cast<size_t>(t * stride + i)])) << "wrote past a row";
        }
        out.insert(out.end(), y.begin() + t * stride, y.begin() + t * stride + rows);
    }
    return out;
}

// Activations as the kernels round them. For quantized weights: int8 multiples of absmax / 127 per
// block of 32. For BF16 weights: the nearest BF16, at levels with BF16 products.
inline std::vector<float> MatmulRounded(const std::vector<float>& x, ActivationFormat as) {
    if (as == ActivationFormat::kNone) return x;
    std::vector<float> rounded(x.size());
    if (as == ActivationFormat::kBF16) {
        for (size_t i = 0; i < x.size(); ++i) rounded[i] = BF16ToF32(F32ToBF16(x[i]));
        return rounded;
    }
    for (size_t b = 0; b < x.size(); b += 32) {
        float peak = 0;
        for (size_t i = b; i < b + 32; ++i) peak = std::max(peak, std::fabs(x[i]));
        for (size_t i = b; i < b + 32 && peak > 0; ++i) {
            rounded[i] = std::nearbyint(x[i] * (127 / peak)) * (peak / 127);
        }
    }
    return rounded;
}

// Largest error of y[t][row] against exact arithmetic: float rounding of a sum of terms, each at
// most 3 times (scale * quant + minimum) its block's largest weight times |x|.
inline double Bound(const Weight& weight, const float* x, int64_t row) {
    double bound = 1e-30;
    for (int64_t b = 0; b < weight.cols; b += 32) {
        double widest = 0, total = 0;
        for (int64_t k = b; k < std::min(weight.cols, b + 32); ++k) {
            const double w = std::fabs(weight.floats[static_cast<size_t>(row * weight.cols + k)]);
            widest = std::max(widest, w);
            total += std::fabs(x[k]);
        }
        bound += 3 * widest * total * 1e-6;
    }
    return bound;
}

inline void MatmulExpectNear(const Weight& weight, const std::vector<float>& x, int64_t tokens,
                             const std::vector<float>& y) {
    for (int64_t t = 0; t < tokens; ++t) {
        const float* x_row = &x[static_cast<size_t>(t * weight.cols)];
        for (int64_t row = 0; row < weight.rows; ++row) {
            double exact = 0;
            for (int64_t k = 0; k < weight.cols; ++k) {
                exact += static_cast<double>(x_row[k]) *
                         weight.floats[static_cast<size_t>(row * weight.cols + k)];
            }
            const double error = std::fabs(exact - y[static_cast<size_t>(t * weight.rows + row)]);
            ASSERT_LE(error, Bound(weight, x_row, row))
                << Info(weight.dtype).name << " [" << weight.rows << ", " << weight.cols
                << "], token " << t << " of " << tokens << ", row " << row;
        }
    }
}

}  // namespace weft::kernels::test
