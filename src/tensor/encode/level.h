// Table of the functions of one CPU level. Each encode/level_*.cc defines one table.
#pragma once

#include <cstddef>

#include "tensor/encode.h"
#include "tensor/quant_parts.h"

namespace weft::encode {

struct Level {
    void (*encode)(const EncodeArgs& args);
    void (*f16_to_f32)(const std::byte* src, float* dst, size_t count);
    // dst[i] = q[i] * scale[i / 16] + offset[i / 16]; count: a multiple of 16.
    void (*join)(const BlockParts& parts, float* dst, int count);
};

extern const Level kBaseLevel, kAvx2Level, kAvx512Level;

}  // namespace weft::encode
