// Attention temperature: a factor on queries that grows with the logarithm of the position, so that
// attention stays sharp over a long context (Llama 4, 2025). Programs and kernels use this
// definition.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

struct Temperature {
    float beta = 0;      // 0: the factor is 1 everywhere
    int64_t length = 1;  // number of positions after which the factor changes, at least 1
    int64_t offset = 0;  // added to positions, at least 0
    // 1 + beta * log(1 + floor((position + offset) / length)).
    float At(int32_t position) const {
        const auto steps = static_cast<double>((position + offset) / length);
        return static_cast<float>(1.0 + static_cast<double>(beta) * std::log(1.0 + steps));
    }
};

}  // namespace weft
