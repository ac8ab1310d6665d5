// Reads and writes the fields of a quantized block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"
#include "tensor/quant_parts.h"

namespace weft::quant {

inline uint8_t ByteAt(const std::byte* p, int i) {
    return std::to_integer<uint8_t>(p[i]);
}

inline uint16_t LoadU16(const std::byte* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

inline uint32_t LoadU32(const std::byte* p) {
    uint32_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

inline float LoadF16(const std::byte* p) {
    return F16ToF32(LoadU16(p));
}

// The values of the 16 codes: kIq4Values of IQ4_NL and IQ4_XS, kMxfp4Values of MXFP4 (values of
// E2M1, doubled).
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<int8_t, 16> kMxfp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

// Sets one scale and one offset for parts [begin, end).
inline void SetScale(BlockParts& parts, int begin, int end, float scale, float offset = 0) {
    for (int part = begin; part < end; ++part) {
        parts.scale[part] = scale;
        parts.offset[part] = offset;
    }
}

// Defined in quant_iq.cc.
void SplitIq1S(const std::byte* block, BlockParts& parts);
void SplitIq1M(const std::byte* block, BlockParts& parts);
void SplitIq2Xxs(const std::byte* block, BlockParts& parts);
void SplitIq2Xs(const std::byte* block, BlockParts& parts);
void SplitIq2S(const std::byte* block, BlockParts& parts);
void SplitIq3Xxs(const std::byte* block, BlockParts& parts);
void SplitIq3S(const std::byte* block, BlockParts& parts);

}  // namespace weft::quant
