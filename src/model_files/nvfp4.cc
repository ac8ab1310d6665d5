#include "model_files/nvfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace weft::model_files {
namespace {

// The byte whose NvScale equals the value of a positive E4M3 byte.
uint8_t NvByte(uint8_t e4m3) {
    const auto bits = std::bit_cast<uint32_t>(E4m3ToF32(e4m3));
    return static_cast<uint8_t>((bits - kNvScaleBase) >> 20);
}

}  // namespace

Status PutNvBlock(std::span<const uint8_t, 64> codes, std::span<const uint8_t, 4> scales,
                  float scale, std::byte* out) {
    const float half = 0.5f * scale;  // codes give doubled values
    std::memcpy(out, &half, sizeof half);
    uint8_t own[kNvBlock];
    std::ranges::copy(codes, own);
    for (size_t part = 0; part < 4; ++part) {
        const uint8_t byte = scales[part];
        if (byte > 0x7e) {
            return MakeError(ErrorCode::kCorrupt,
                             "a scale of 16 weights is {}; expected 0 or a positive number",
                             byte == 0x7f || byte == 0xff ? "NaN" : "negative");
        }
        if (byte == 0) std::fill_n(own + part * kNvScaleElements, kNvScaleElements, uint8_t{0});
        out[4 + part] = static_cast<std::byte>(byte == 0 ? 0 : NvByte(byte));
    }
    for (size_t run = 0; run < 2; ++run) {
        const uint8_t* code = own + 32 * run;
        for (size_t i = 0; i < 16; ++i) {
            out[8 + 16 * run + i] = static_cast<std::byte>(code[i] | code[16 + i] << 4);
        }
    }
    return {};
}

Status PutNvBlockOfGguf(const std::byte* block, float scale, std::byte* out) {
    std::array<uint8_t, 64> codes;
    std::array<uint8_t, 4> scales;
    std::memcpy(scales.data(), block, scales.size());
    for (size_t part = 0; part < 4; ++part) {
        for (size_t j = 0; j < 8; ++j) {
            const auto byte = std::to_integer<uint8_t>(block[4 + 8 * part + j]);
            codes[16 * part + j] = byte & 15;
            codes[16 * part + 8 + j] = byte >> 4;
        }
    }
    return PutNvBlock(codes, scales, scale, out);
}

}  // namespace weft::model_files
