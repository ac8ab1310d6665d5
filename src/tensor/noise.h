// Noise of the embedding in training (NEFTune: Jain et al. 2023): a number for each key and column,
// evenly distributed over [-1, 1). All devices compute the same bits (src/shaders/add_noise.comp).
#pragma once

#include <cstdint>

namespace weft {

inline float NoiseAt(uint32_t key, uint32_t column) {
    uint32_t bits = key + column * 0x9e3779b9u;
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    bits ^= bits >> 16;
    return static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f;
}

}  // namespace weft
