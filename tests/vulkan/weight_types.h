// Weights for tests of products: all types that kernels support, random blocks of them, and the
// values that the blocks represent.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "backend/gpu/dispatch/weights.h"
#include "model_files/synthetic_weights.h"
#include "tensor/quant.h"

namespace weft::backend::on_gpu::test {

inline std::vector<DType> TakenTypes() {
    std::vector<DType> types;
    for (const DTypeInfo& info : kDTypes) {
        if (CheckWeightType(info.dtype, 256).ok()) types.push_back(info.dtype);
    }
    return types;
}

inline bool HasBook(DType dtype) {
    return LayoutOf(dtype, 1, 256).table_bytes != 0;
}

struct RandomWeight {
    // Elements of about 1 / sqrt(cols): random codes under a fixed scale for even seeds; for odd
    // seeds, if the type has an encoder, rounded normal numbers whose magnitudes differ greatly
    // between rows (scales may be subnormal in float16).
    RandomWeight(DType type, int64_t row_count, int64_t col_count, uint32_t seed)
        : dtype(type), rows(row_count), cols(col_count) {
        const auto row_bytes = static_cast<size_t>(RowBytes(dtype, cols));
        blocks.resize(static_cast<size_t>(rows) * row_bytes);
        floats.resize(static_cast<size_t>(rows * cols));
        std::mt19937 random(seed);
        for (int64_t row = 0; row < rows; ++row) {
            const std::span<std::byte> out(blocks.data() + static_cast<size_t>(row) * row_bytes,
                                           row_bytes);
            if (seed % 2 == 0 || !CanQuantize(dtype)) {
                model_files::RandomRow(dtype, seed, cols, row, 0, cols, out);
            } else {
                std::vector<float> values(static_cast<size_t>(cols));
                std::normal_distribution<float> normal(
                    0, std::ldexp(1.0f, -static_cast<int>(random() % 16)));
                for (float& value : values) value = normal(random);
                QuantizeRow(dtype, values, out);
            }
        }
        DequantizeRow(dtype, blocks, floats);
    }
    std::span<const float> Row(int64_t row) const {
        return std::span(floats).subspan(static_cast<size_t>(row * cols),
                                         static_cast<size_t>(cols));
    }
    DType dtype;
    int64_t rows, cols;
    std::vector<std::byte> blocks;
    std::vector<float> floats;
};

inline std::vector<float> RandomValues(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
}

}  // namespace weft::backend::on_gpu::test
