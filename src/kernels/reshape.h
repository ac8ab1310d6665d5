// Converts the file's blocks to the layout of blocks in strips and back, for types whose layouts
// differ. Used by weight_tiles.cc only.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/quant.h"
#include "tensor/quant_parts.h"

namespace weft::kernels::weight_tiles {

inline constexpr int kWidestBlock = 256;

// Types whose packed block layout differs from the layout in the file.
template <DType kType>
constexpr bool kReshaped =
    kType == DType::kQ4_K || kType == DType::kQ5_K || kType == DType::kIQ4_XS ||
    kType == DType::kQ5_0 || kType == DType::kQ5_1 || kType == DType::kQ3_K ||
    kType == DType::kTQ1_0 || kType == DType::kIQ2_XS || kType == DType::kIQ1_S ||
    kType == DType::kFP8;
// Types whose blocks are converted back before they are dequantized.
template <DType kType>
constexpr bool kShapedBack = kReshaped<kType>&& kType != DType::kTQ1_0;

// Q4_K and Q5_K: converts the packed 6-bit scales and minima to bytes and copies the remaining
// `rest` bytes of the block.
inline void WidenScales(const std::byte* block, size_t rest, std::byte* wide) {
    std::memcpy(wide, block, 4);
    for (int j = 0; j < 8; ++j) {
        const Q4KScale sub = LoadQ4KScale(block + 4, j);
        wide[4 + j] = static_cast<std::byte>(sub.scale);
        wide[12 + j] = static_cast<std::byte>(sub.min);
    }
    std::memcpy(wide + 20, block + 16, rest);
}

inline void NarrowScales(const std::byte* wide, size_t rest, std::byte* block) {
    std::fill(block, block + 16, std::byte{0});
    std::memcpy(block, wide, 4);
    for (int j = 0; j < 8; ++j) {
        StoreQ4KScale(block + 4, j,
                      {std::to_integer<int>(wide[4 + j]), std::to_integer<int>(wide[12 + j])});
    }
    std::memcpy(block + 16, wide + 20, rest);
}

// IQ4_XS: the file's block has f16 d, then eight 6-bit scales (32 means zero): their upper two bits
// in a u16 and their lower four bits in 4 bytes.
inline void WidenIq4Xs(const std::byte* block, std::byte* wide) {
    std::memcpy(wide, block, 2);
    uint16_t high;
    std::memcpy(&high, block + 2, sizeof high);
    for (int s = 0; s < 8; ++s) {
        const int low = std::to_integer<int>(block[4 + s / 2]) >> s % 2 * 4 & 15;
        wide[2 + s] = static_cast<std::byte>((low | (high >> 2 * s & 3) << 4) - 32);
    }
    std::memcpy(wide + 10, block + 8, 128);
}

inline void NarrowIq4Xs(const std::byte* wide, std::byte* block) {
    std::fill(block, block + 8, std::byte{0});
    std::memcpy(block, wide, 2);
    uint16_t high = 0;
    for (int s = 0; s < 8; ++s) {
        const int scale = static_cast<int8_t>(wide[2 + s]) + 32;
        block[4 + s / 2] |= static_cast<std::byte>((scale & 15) << s % 2 * 4);
        high = static_cast<uint16_t>(high | (scale >> 4) << 2 * s);
    }
    std::memcpy(block + 2, &high, sizeof high);
    std::memcpy(block + 8, wide + 10, 128);
}

// Fifth bits: bit k = 4g + i of the file becomes bit g of byte i (kBack: the inverse).
template <bool kBack>
void MoveFifthBits(std::byte* at) {
    uint32_t from, to = 0;
    std::memcpy(&from, at, sizeof from);
    for (int k = 0; k < 32; ++k) {
        const int here = k % 4 * 8 + k / 4;
        to |= (from >> (kBack ? here : k) & 1) << (kBack ? k : here);
    }
    std::memcpy(at, &to, sizeof to);
}

// Q3_K: the file's block has 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 16 scales
// (32 means zero) and f16 d. Converts it to d, the scales as int8, and three times 32 bytes (a, b,
// c of weight_tiles.h).
inline void WidenQ3K(const std::byte* block, std::byte* wide) {
    std::memcpy(wide, block + 108, 2);
    for (int s = 0; s < 16; ++s) {
        const int low = std::to_integer<int>(block[96 + s % 8]) >> s / 8 * 4 & 15;
        const int high = std::to_integer<int>(block[104 + s % 4]) >> s / 4 * 2 & 3;
        wide[2 + s] = static_cast<std::byte>((low | high << 4) - 32);
    }
    for (int l = 0; l < 32; ++l) {
        const auto third = std::to_integer<unsigned>(block[l]);
        const auto p = std::to_integer<unsigned>(block[32 + l]);  // elements l + 32 * (0 to 3)
        const auto q = std::to_integer<unsigned>(block[64 + l]);  // 4 to 7
        const auto code = [&](unsigned g) {
            return ((g < 4 ? p : q) >> g % 4 * 2 & 3) | (third >> g & 1) << 2;
        };
        wide[18 + l] = static_cast<std::byte>(code(0) | code(1) << 3 | (code(6) & 3) << 6);
        wide[50 + l] = static_cast<std::byte>(code(2) | code(3) << 3 | (code(7) & 3) << 6);
        wide[82 + l] = static_cast<std::byte>(code(4) | code(5) << 3 | (third >> 6) << 6);
    }
}

inline void NarrowQ3K(const std::byte* wide, std::byte* block) {
    std::memcpy(block + 108, wide, 2);
    std::fill(block + 96, block + 108, std::byte{0});
    for (int s = 0; s < 16; ++s) {
        const int scale = static_cast<int8_t>(wide[2 + s]) + 32;
        block[96 + s % 8] |= static_cast<std::byte>((scale & 15) << s / 8 * 4);
        block[104 + s % 4] |= static_cast<std::byte>((scale >> 4) << s / 4 * 2);
    }
    for (int l = 0; l < 32; ++l) {
        const auto a = std::to_integer<unsigned>(wide[18 + l]);
        const auto b = std::to_integer<unsigned>(wide[50 + l]);
        const auto c = std::to_integer<unsigned>(wide[82 + l]);
        const unsigned codes[8] = {a & 7,
                                   a >> 3 & 7,
                                   b & 7,
                                   b >> 3 & 7,
                                   c & 7,
                                   c >> 3 & 7,
                                   a >> 6 | (c >> 6 & 1) << 2,
                                   b >> 6 | (c >> 7) << 2};
        unsigned third = 0, pairs[2] = {};
        for (unsigned g = 0; g < 8; ++g) {
            third |= (codes[g] >> 2) << g;
            pairs[g / 4] |= (codes[g] & 3) << g % 4 * 2;
        }
        block[l] = static_cast<std::byte>(third);
        block[32 + l] = static_cast<std::byte>(pairs[0]);
        block[64 + l] = static_cast<std::byte>(pairs[1]);
    }
}

// Converts TQ1_0 (five base-3 digits per byte) to TQ2_0 (four codes of two bits).
inline void AsTernaryPairs(const std::byte* block, std::byte* pairs) {
    BlockParts parts;
    SplitBlock(DType::kTQ1_0, block, parts);
    std::fill(pairs, pairs + 64, std::byte{0});
    for (int i = 0; i < 256; ++i) {
        pairs[i / 128 * 32 + i % 32] |=
            static_cast<std::byte>((parts.q[i] + 1) << i % 128 / 32 * 2);
    }
    std::memcpy(pairs + 64, block + 52, 2);
}

// IQ2_XS: the file's block has f16 d, 32 u16 of a 9-bit index and 7 signs each, and 8 bytes of
// scales. Converts it to d, the scales, and for each 32 weights the low bytes of four indices, then
// 4 x 7 signs with the ninth bits of the indices.
inline void SplitIndicesIq2Xs(const std::byte* block, std::byte* shaped) {
    std::memcpy(shaped, block, 2);
    std::memcpy(shaped + 2, block + 66, 8);
    for (int u = 0; u < 8; ++u) {
        uint32_t word = 0;
        for (int g = 0; g < 4; ++g) {
            uint16_t both;
            std::memcpy(&both, block + 2 + 8 * u + 2 * g, sizeof both);
            shaped[10 + 8 * u + g] = static_cast<std::byte>(both & 255);
            word |= static_cast<uint32_t>(both >> 9) << 7 * g;
            word |= static_cast<uint32_t>(both >> 8 & 1) << (28 + g);
        }
        std::memcpy(shaped + 14 + 8 * u, &word, sizeof word);
    }
}

inline void JoinIndicesIq2Xs(const std::byte* shaped, std::byte* block) {
    std::memcpy(block, shaped, 2);
    std::memcpy(block + 66, shaped + 2, 8);
    for (int u = 0; u < 8; ++u) {
        uint32_t word;
        std::memcpy(&word, shaped + 14 + 8 * u, sizeof word);
        for (int g = 0; g < 4; ++g) {
            const auto low = std::to_integer<uint32_t>(shaped[10 + 8 * u + g]);
            const auto both = static_cast<uint16_t>(low | (word >> (28 + g) & 1) << 8 |
                                                    (word >> 7 * g & 127) << 9);
            std::memcpy(block + 2 + 8 * u + 2 * g, &both, sizeof both);
        }
    }
}

// IQ1_S: moves the bits of the eight words, each of which has 4 x 3 bits of indices, 3 bits of the
// scale and the sign, so that the 3-bit fields become nibbles (kBack: the inverse).
template <bool kBack>
void MoveIq1Fields(std::byte* words) {
    for (int u = 0; u < 8; ++u) {
        uint16_t from;
        std::memcpy(&from, words + 2 * u, sizeof from);
        unsigned to = 0;
        for (unsigned g = 0; g < 4; ++g) {
            if constexpr (kBack) {
                to |= (from >> 4 * g & 7u) << 3 * g | (from >> (4 * g + 3) & 1u) << (12 + g);
            } else {
                to |= (from >> 3 * g & 7u) << 4 * g | (from >> (12 + g) & 1u) << (4 * g + 3);
            }
        }
        const auto word = static_cast<uint16_t>(to);
        std::memcpy(words + 2 * u, &word, sizeof word);
    }
}

// FP8: swaps the middle two of each four codes. Calling this twice restores the block.
inline void SwapMiddleCodes(const std::byte* from, std::byte* to) {
    constexpr auto kBytes = static_cast<size_t>(Info(DType::kFP8).block_bytes);
    std::memcpy(to, from, kBytes);
    for (size_t i = sizeof(float); i < kBytes; i += 4) std::swap(to[i + 1], to[i + 2]);
}

template <DType kType>
void Reshape(const std::byte* block, std::byte* shaped) {
    constexpr auto kBytes = static_cast<size_t>(Info(kType).block_bytes);
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
        WidenScales(block, kBytes - 16, shaped);
    } else if constexpr (kType == DType::kIQ4_XS) {
        WidenIq4Xs(block, shaped);
    } else if constexpr (kType == DType::kQ3_K) {
        WidenQ3K(block, shaped);
    } else if constexpr (kType == DType::kTQ1_0) {
        AsTernaryPairs(block, shaped);
    } else if constexpr (kType == DType::kIQ2_XS) {
        SplitIndicesIq2Xs(block, shaped);
    } else if constexpr (kType == DType::kIQ1_S) {
        std::memcpy(shaped, block, kBytes);
        MoveIq1Fields<false>(shaped + 34);
    } else if constexpr (kType == DType::kFP8) {
        SwapMiddleCodes(block, shaped);
    } else {
        std::memcpy(shaped, block, kBytes);
        MoveFifthBits<false>(shaped + (kType == DType::kQ5_0 ? 2 : 4));
    }
}

template <DType kType>
void ShapeBack(const std::byte* shaped, std::byte* block) {
    constexpr auto kBytes = static_cast<size_t>(Info(kType).block_bytes);
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
        NarrowScales(shaped, kBytes - 16, block);
    } else if constexpr (kType == DType::kIQ4_XS) {
        NarrowIq4Xs(shaped, block);
    } else if constexpr (kType == DType::kQ3_K) {
        NarrowQ3K(shaped, block);
    } else if constexpr (kType == DType::kIQ2_XS) {
        JoinIndicesIq2Xs(shaped, block);
    } else if constexpr (kType == DType::kIQ1_S) {
        std::memcpy(block, shaped, kBytes);
        MoveIq1Fields<true>(block + 34);
    } else if constexpr (kType == DType::kFP8) {
        SwapMiddleCodes(shaped, block);
    } else {
        std::memcpy(block, shaped, kBytes);
        MoveFifthBits<true>(block + (kType == DType::kQ5_0 ? 2 : 4));
    }
}

}  // namespace weft::kernels::weight_tiles
