// Converts NVFP4 data of files to blocks of DType::kNVFP4 (tensor/dtype.h): E2M1 codes, an E4M3
// scale for each 16 of them, and a tensor-wide scale.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft::model_files {

inline constexpr int64_t kNvBlock = 64;       // elements of a block
inline constexpr int64_t kNvBlockBytes = 40;  // in memory
inline constexpr int64_t kNvScaleElements = 16;

// The value of an E4M3 byte (OCP 8-bit formats): no infinities; 0x7f and 0xff are NaN.
constexpr float E4m3ToF32(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
    if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
    const int power = exponent == 0 ? -9 : exponent - 10;
    const float unit = std::bit_cast<float>(static_cast<uint32_t>(127 + power) << 23);
    return sign * static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * unit;
}

// In a GGUF file, a block of 64 has four scales and 32 bytes of codes. Each 8 bytes hold 16
// elements: byte j has elements j and j + 8. The tensor-wide scale is a separate tensor,
// `NAME.scale`.
inline constexpr uint32_t kGgufNvfp4 = 40;  // the type's number in GGUF
inline constexpr int64_t kGgufNvBlockBytes = 36;
// Bytes of a row in a GGUF file, for any dtype.
constexpr int64_t GgufRowBytes(DType dtype, int64_t cols) {
    return dtype == DType::kNVFP4 ? cols / kNvBlock * kGgufNvBlockBytes : RowBytes(dtype, cols);
}
// Converts a block of a GGUF file to a block in memory. Errors: as PutNvBlock.
Status PutNvBlockOfGguf(const std::byte* block, float scale, std::byte* out);

// codes: 64 elements, 4 bits each. scales: four E4M3 bytes, positive or zero. scale: the
// tensor-wide scale, finite. out: kNvBlockBytes. Errors: kCorrupt for a negative or NaN scale.
Status PutNvBlock(std::span<const uint8_t, 64> codes, std::span<const uint8_t, 4> scales,
                  float scale, std::byte* out);

}  // namespace weft::model_files
