#include "model_files/synthetic_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "tensor/half.h"
#include "tensor/quant_parts.h"

namespace weft::model_files {
namespace {

uint64_t RandomWord(uint64_t key, uint64_t index) {
    uint64_t z = key + index * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Words are numbered by block; the largest block (Q6_K) uses 27 of its 32.
constexpr uint64_t kWordsPerBlock = 32;

// Fills `out` with the random words of block `block`; returns a sign that depends on all of them.
float FillBlock(uint64_t key, uint64_t block, std::byte* out, size_t bytes) {
    uint64_t all = 0;
    for (size_t at = 0; at < bytes; at += 8) {
        const uint64_t word = RandomWord(key, block * kWordsPerBlock + at / 8);
        std::memcpy(out + at, &word, std::min<size_t>(8, bytes - at));
        all ^= word;
    }
    return (std::popcount(all) & 1) != 0 ? -1.0f : 1.0f;
}

void PutHalf(std::byte* out, float value) {
    const uint16_t half = F32ToF16(value);
    std::memcpy(out, &half, 2);
}

// Below, `deviation` is the desired standard deviation of the weights. Unsigned quants are half a
// step off zero, so the scale's sign is random too, which gives blocks a mean of 0.

// w = d (q - 8), q in 0..15: E[(q - 8)^2] = 21.5.
void BlockQ4_0(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    const float sign = FillBlock(key, block, out + 2, 16);
    PutHalf(out, sign * deviation / std::sqrt(21.5f));
}

// w = d q + m with m = -7.5 d: E = 21.25 d^2.
void BlockQ4_1(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    FillBlock(key, block, out + 4, 16);
    const float scale = deviation / std::sqrt(21.25f);
    PutHalf(out, scale);
    PutHalf(out + 2, -7.5f * scale);
}

// Sets the f16 field that scales a whole block. IQ1_M's is in four parts.
void SetScale(DType dtype, std::byte* block, float scale) {
    const auto put = [&](int at) { PutHalf(block + at, scale); };
    switch (dtype) {
        case DType::kQ5_1:
        case DType::kQ5_K: put(0), put(2); break;
        case DType::kQ2_K: put(80), put(82); break;
        case DType::kQ3_K: put(108); break;
        case DType::kTQ1_0: put(52); break;
        case DType::kTQ2_0: put(64); break;
        case DType::kIQ1_M:
            for (int i = 0; i < 4; ++i) {
                std::byte& top = block[48 + 2 * i + 1];
                const int part = F32ToF16(scale) >> 4 * i & 15;
                top = (top & std::byte{15}) | static_cast<std::byte>(part << 4);
            }
            break;
        case DType::kMXFP4:  // 2^(e - 128)
            block[0] = static_cast<std::byte>(std::ilogb(std::fabs(scale)) + 128);
            break;
        case DType::kW4:
        case DType::kW8: {  // with the middle code as the zero point
            const uint32_t zero = dtype == DType::kW4 ? 8 : 128;
            const uint32_t head = (std::bit_cast<uint32_t>(scale) & 0xffff0000u) | zero;
            std::memcpy(block, &head, sizeof head);
            break;
        }
        case DType::kNVFP4:  // all scale bytes get the same exponent
            std::memcpy(block, &scale, sizeof scale);
            for (int i = 4; i < 8; ++i) {
                block[i] = (block[i] & std::byte{7}) | std::byte{10 << 3};
            }
            break;
        case DType::kQ5_0:
        case DType::kIQ1_S:
        case DType::kIQ2_XXS:
        case DType::kIQ2_XS:
        case DType::kIQ2_S:
        case DType::kIQ3_XXS:
        case DType::kIQ3_S:
        case DType::kIQ4_NL:
        case DType::kIQ4_XS: put(0); break;
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16:
        case DType::kQ4_0:
        case DType::kQ4_1:
        case DType::kQ8_0:
        case DType::kQ4_K:
        case DType::kQ6_K:
        case DType::kFP8:
        case DType::kI32:
        case DType::kF64: WEFT_CHECK(!"made otherwise");
    }
}

// w = d q, q in -128..127: E[q^2] = 5461.5.
void BlockQ8_0(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    const float sign = FillBlock(key, block, out + 2, 32);
    PutHalf(out, sign * deviation / std::sqrt(5461.5f));
}

// w = d s q - dmin m with sub-block scale s = m in 0..63 and dmin = 7.5 d. The 12 bytes of packed
// scales and minima are chosen so that each sub-block's two are equal.
// E[s^2] E[(q - 7.5)^2] = 1333.5 * 21.25.
void BlockQ4_K(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    FillBlock(key, block, out + 4, 140);
    const float scale = deviation / std::sqrt(1333.5f * 21.25f);
    PutHalf(out, scale);
    PutHalf(out + 2, 7.5f * scale);
    std::byte* packed = out + 4;
    for (int j = 0; j < 4; ++j) {
        packed[j + 4] = packed[j];
        const std::byte low = packed[j + 8] & std::byte{15};
        packed[j + 8] = low | (low << 4);
    }
}

// w = d s (q - 32), s in -128..127, q in 0..63: E[s^2] E[(q - 32)^2] = 5461.5 * 341.5.
void BlockQ6_K(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    FillBlock(key, block, out, 208);
    PutHalf(out + 208, deviation / std::sqrt(5461.5f * 341.5f));
}

// Approximately normal: the sum of four uniform 16-bit numbers, which has mean 2 (2^16 - 1) and
// variance 4 (2^32 - 1) / 12.
float NearlyNormal(uint64_t word) {
    const uint64_t pairs = (word & 0x0000ffff0000ffffull) + ((word >> 16) & 0x0000ffff0000ffffull);
    const auto sum = static_cast<int32_t>((pairs & 0xffffffffu) + (pairs >> 32));
    return static_cast<float>(sum - 131070) * (1.0f / 37837.2f);
}

// One of the two powers of two around `scale`, chosen by `word` so that the mean of its square
// equals that of `scale`: the higher one with probability ((scale / low)^2 - 1) / 3.
float PowerNear(float scale, uint64_t word) {
    const float low = std::ldexp(1.0f, std::ilogb(scale));
    const float ratio = scale / low;
    const float draw = static_cast<float>(word >> 40) * 0x1p-24f;
    return draw < (ratio * ratio - 1) / 3 ? 2 * low : low;
}

// All other types: random bits, then the f16 (or exponent) that scales the block is set so that the
// root mean square of this block is `deviation`.
void BlockOf(DType dtype, uint64_t key, uint64_t block, float deviation, std::byte* out) {
    const auto bytes = static_cast<size_t>(Info(dtype).block_bytes);
    const float sign = FillBlock(key, block, out, bytes);
    SetScale(dtype, out, 1.0f);
    BlockParts parts;
    SplitBlock(dtype, out, parts);
    double squares = 0;
    const auto count = static_cast<int>(Info(dtype).block_elements);
    for (int i = 0; i < count; ++i) {
        const float scale = parts.scale[i / kPartElements],
                    offset = parts.offset[i / kPartElements];
        const double w = static_cast<double>(parts.q[i]) * scale + offset;
        squares += w * w;
    }
    const double root = std::sqrt(std::max(squares / count, 1e-6));
    float scale = deviation / static_cast<float>(root);
    if (dtype == DType::kMXFP4) scale = PowerNear(scale, RandomWord(~key, block));
    SetScale(dtype, out, sign * scale);
}

// Random codes except NaN, and the scale that gives this block the deviation.
void BlockFP8(uint64_t key, uint64_t block, float deviation, std::byte* out) {
    constexpr auto kBytes = static_cast<size_t>(Info(DType::kFP8).block_bytes);
    FillBlock(key, block, out, kBytes);
    double squares = 0;
    for (size_t i = sizeof(float); i < kBytes; ++i) {
        if ((out[i] & std::byte{0x7f}) == std::byte{0x7f}) out[i] ^= std::byte{1};
        const double value = Fp8Value(std::to_integer<uint8_t>(out[i]));
        squares += value * value;
    }
    const double root = std::sqrt(squares / static_cast<double>(kBytes - sizeof(float)));
    const float scale = deviation / static_cast<float>(root);
    std::memcpy(out, &scale, sizeof scale);
}

void FillBlockOf(DType dtype, uint64_t key, uint64_t block, float deviation, std::byte* out) {
    if (dtype == DType::kQ4_0) return BlockQ4_0(key, block, deviation, out);
    if (dtype == DType::kQ4_1) return BlockQ4_1(key, block, deviation, out);
    if (dtype == DType::kQ8_0) return BlockQ8_0(key, block, deviation, out);
    if (dtype == DType::kQ4_K) return BlockQ4_K(key, block, deviation, out);
    if (dtype == DType::kQ6_K) return BlockQ6_K(key, block, deviation, out);
    if (dtype == DType::kFP8) return BlockFP8(key, block, deviation, out);
    BlockOf(dtype, key, block, deviation, out);
}

// `store` writes one float; a template parameter, so that the loop has no branch on the dtype.
template <typename Store>
void RandomFloats(uint64_t key, int64_t first, float deviation, int64_t count, Store store) {
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t word = RandomWord(key, static_cast<uint64_t>(first + i));
        store(i, deviation * NearlyNormal(word));
    }
}

void RandomFloatsOf(DType dtype, uint64_t key, int64_t first, float deviation, int64_t count,
                    std::byte* out) {
    const auto put = [out](int64_t i, auto bits) {
        std::memcpy(out + static_cast<int64_t>(sizeof bits) * i, &bits, sizeof bits);
    };
    if (dtype == DType::kF32) {
        RandomFloats(key, first, deviation, count, put);
    } else if (dtype == DType::kF16) {
        RandomFloats(key, first, deviation, count,
                     [put](int64_t i, float value) { put(i, F32ToF16(value)); });
    } else {
        RandomFloats(key, first, deviation, count,
                     [put](int64_t i, float value) { put(i, F32ToBF16(value)); });
    }
}

}  // namespace

uint64_t WeightKey(uint64_t seed, std::string_view tensor) {
    return RandomWord(Checksum64(std::as_bytes(std::span(tensor)), seed), seed);
}

void RandomNormal(uint64_t key, uint64_t first, float deviation, std::span<float> out) {
    // For the sum of twelve 16-bit numbers: the mean, and 1 / the standard deviation, whose square
    // is 2^32 - 1.
    constexpr int64_t kMean = 6 * 65535;
    constexpr float kScale = 1.0f / 65536;
    for (size_t i = 0; i < out.size(); ++i) {
        uint64_t pairs = 0;  // two sums of six numbers, in the word's halves
        for (uint64_t part = 0; part < 3; ++part) {
            const uint64_t word = RandomWord(key, 3 * (first + i) + part);
            pairs += (word & 0x0000ffff0000ffffull) + ((word >> 16) & 0x0000ffff0000ffffull);
        }
        const auto sum = static_cast<int64_t>((pairs & 0xffffffffu) + (pairs >> 32));
        out[i] = static_cast<float>(sum - kMean) * (kScale * deviation);
    }
}

void RandomRow(DType dtype, uint64_t key, int64_t cols, int64_t row, int64_t col_begin,
               int64_t col_count, std::span<std::byte> out) {
    WEFT_CHECK(dtype != DType::kI32);
    WEFT_CHECK(out.size() == static_cast<size_t>(RowBytes(dtype, col_count)));
    const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    const DTypeInfo& info = Info(dtype);
    if (!info.quantized) {
        RandomFloatsOf(dtype, key, row * cols + col_begin, deviation, col_count, out.data());
        return;
    }
    const int64_t first = (row * cols + col_begin) / info.block_elements;
    for (int64_t b = 0; b < col_count / info.block_elements; ++b) {
        FillBlockOf(dtype, key, static_cast<uint64_t>(first + b), deviation,
                    out.data() + b * info.block_bytes);
    }
}

}  // namespace weft::model_files
