// The functions of one CPU level, behind pointers; and the file body that defines them.
#pragma once

#include <cstddef>

#include "tensor/encode.h"

namespace weft::encode {

struct Level {
    void (*encode)(const EncodeArgs& args);
    void (*f16_to_f32)(const std::byte* src, float* dst, size_t count);
};

extern const Level kBaseLevel, kAvx2Level, kAvx512Level;

}  // namespace weft::encode
