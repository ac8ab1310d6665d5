// Splits blocks of the codebook types (quant_grids.h): IQ1, IQ2 and IQ3.
#include "tensor/quant_bytes.h"
#include "tensor/quant_grids.h"

namespace weft::quant {
namespace {

constexpr int8_t kIq2Values[4] = {8, 25, 43, 0};
constexpr int8_t kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Adds the eighth sign to seven, which makes the number of minus signs even.
uint8_t EvenSigns(uint32_t seven) {
    seven &= 127;
    return static_cast<uint8_t>(seven | static_cast<uint32_t>(__builtin_parity(seven)) << 7);
}

// Unpacks `count` values of `bits` bits from an entry, signed by the bits of `signs` from
// `first_sign` on.
template <int kBits, int kCount>
void Unpack(uint16_t entry, const int8_t* values, uint8_t signs, int first_sign, int8_t* q) {
    for (int k = 0; k < kCount; ++k) {
        const int8_t value = values[entry >> k * kBits & ((1 << kBits) - 1)];
        q[k] = (signs >> (first_sign + k) & 1) != 0 ? static_cast<int8_t>(-value) : value;
    }
}

void UnpackIq2(uint16_t entry, uint8_t signs, int8_t* q) {
    Unpack<2, 8>(entry, kIq2Values, signs, 0, q);
}

// Eight weights 8 g +- 1, g in {-1, 0, 1}: the offset of +-1/8 is part of the integer.
void UnpackIq1(int index, bool minus, int8_t* q) {
    const uint16_t entry = kIq1Grid[static_cast<size_t>(index)];
    for (int k = 0; k < 8; ++k) {
        const int g = (entry >> 2 * k & 3) - 1;
        q[k] = static_cast<int8_t>(8 * g + (minus ? -1 : 1));
    }
}

}  // namespace

// f16 d, then for each 32: 4 bytes of indices, and a u32 of 4 x 7 signs and a 4-bit scale.
void SplitIq2Xxs(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 8; ++s) {
        const std::byte* sub = block + 2 + 8 * s;
        const uint32_t word = LoadU32(sub + 4);
        SetScale(parts, 2 * s, 2 * s + 2, d * (0.5f + static_cast<float>(word >> 28)) * 0.25f);
        for (int g = 0; g < 4; ++g) {
            UnpackIq2(kIq2XxsGrid[ByteAt(sub, g)], EvenSigns(word >> 7 * g),
                      parts.q + 32 * s + 8 * g);
        }
    }
}

// f16 d, 32 u16 of a 9-bit index and 7 signs, 16 scales of 4 bits.
void SplitIq2Xs(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 16; ++s) {
        const int scale = ByteAt(block, 66 + s / 2) >> s % 2 * 4 & 15;
        SetScale(parts, s, s + 1, d * (0.5f + static_cast<float>(scale)) * 0.25f);
    }
    for (int g = 0; g < 32; ++g) {
        const uint16_t word = LoadU16(block + 2 + 2 * g);
        UnpackIq2(kIq2XsGrid[word & 511], EvenSigns(word >> 9), parts.q + 8 * g);
    }
}

// f16 d, 32 bytes of indices, 32 of signs, 8 of the indices' 2 high bits, 16 scales of 4 bits.
void SplitIq2S(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 16; ++s) {
        const int scale = ByteAt(block, 74 + s / 2) >> s % 2 * 4 & 15;
        SetScale(parts, s, s + 1, d * (0.5f + static_cast<float>(scale)) * 0.25f);
    }
    for (int g = 0; g < 32; ++g) {
        const int high = ByteAt(block, 66 + g / 4) >> g % 4 * 2 & 3;
        UnpackIq2(kIq2SGrid[static_cast<size_t>(ByteAt(block, 2 + g) | high << 8)],
                  ByteAt(block, 34 + g), parts.q + 8 * g);
    }
}

// f16 d, 64 bytes of indices, then for each 32 a u32 of 4 x 7 signs and a 4-bit scale.
void SplitIq3Xxs(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 8; ++s) {
        const uint32_t word = LoadU32(block + 66 + 4 * s);
        SetScale(parts, 2 * s, 2 * s + 2, d * (0.5f + static_cast<float>(word >> 28)) * 0.5f);
        for (int g = 0; g < 8; ++g) {
            Unpack<3, 4>(kIq3XxsGrid[ByteAt(block, 2 + 8 * s + g)], kIq3XxsValues,
                         EvenSigns(word >> 7 * (g / 2)), g % 2 * 4, parts.q + 32 * s + 4 * g);
        }
    }
}

// f16 d, 64 bytes of indices, 8 of their ninth bits, 32 of signs, 8 scales of 4 bits.
void SplitIq3S(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 8; ++s) {
        const int scale = ByteAt(block, 106 + s / 2) >> s % 2 * 4 & 15;
        SetScale(parts, 2 * s, 2 * s + 2, d * static_cast<float>(1 + 2 * scale));
        for (int g = 0; g < 8; ++g) {
            const int high = ByteAt(block, 66 + s) >> g & 1;
            const int index = ByteAt(block, 2 + 8 * s + g) | high << 8;
            Unpack<3, 4>(kIq3SGrid[static_cast<size_t>(index)], kIq3SValues,
                         ByteAt(block, 74 + 4 * s + g / 2), g % 2 * 4, parts.q + 32 * s + 4 * g);
        }
    }
}

// f16 d, 32 bytes of indices, then for each 32 weights a u16: 4 x 3 high bits, a 3-bit scale, the
// offset's sign.
void SplitIq1S(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    for (int s = 0; s < 8; ++s) {
        const uint16_t word = LoadU16(block + 34 + 2 * s);
        const float scale = d * static_cast<float>(2 * (word >> 12 & 7) + 1);
        SetScale(parts, 2 * s, 2 * s + 2, scale * 0.125f);
        for (int g = 0; g < 4; ++g) {
            UnpackIq1(ByteAt(block, 2 + 4 * s + g) | (word >> 3 * g & 7) << 8, (word & 0x8000) != 0,
                      parts.q + 32 * s + 8 * g);
        }
    }
}

// 32 bytes of indices; 16 bytes with twice 3 high bits and the offset's sign; four u16 of 4 x 3-bit
// scales, whose upper 4 bits together are the f16 d, lowest bits first.
void SplitIq1M(const std::byte* block, BlockParts& parts) {
    const std::byte* scales = block + 48;
    int d_bits = 0;
    for (int i = 0; i < 4; ++i) d_bits |= (LoadU16(scales + 2 * i) >> 12) << 4 * i;
    const float d = F16ToF32(static_cast<uint16_t>(d_bits));
    for (int s = 0; s < 16; ++s) {
        const int scale = LoadU16(scales + s / 4 * 2) >> s % 4 * 3 & 7;
        SetScale(parts, s, s + 1, d * static_cast<float>(2 * scale + 1) * 0.125f);
        for (int g = 2 * s; g < 2 * s + 2; ++g) {
            const int high = ByteAt(block, 32 + s) >> g % 2 * 4;
            UnpackIq1(ByteAt(block, g) | (high & 7) << 8, (high & 8) != 0, parts.q + 8 * g);
        }
    }
}

}  // namespace weft::quant
