#include "coll/wire.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "coll/sum.h"
#include "tensor/half.h"
#include "tensor/half_rows.h"

namespace weft::coll {
namespace {

// Decodes a block at a time, which stays in the L1 cache. Whole q8 blocks.
constexpr size_t kBlock = 512;
static_assert(kBlock % kQ8Block == 0);
constexpr size_t kQ8BlockBytes = kQ8Block + sizeof(float);
// Blocks below this are all zero: the scale would not be a normal number.
constexpr float kQ8Zero = 0x1p-100f;

[[gnu::always_inline]] inline uint16_t ToBf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded >> 16);
}

[[gnu::always_inline]] inline float FromBf16(uint16_t value) {
    return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

template <typename T>
[[gnu::always_inline]] inline void EncodeBf16(const T* values, size_t count, std::byte* out) {
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = ToBf16(static_cast<float>(values[i]));
        std::memcpy(out + i * sizeof half, &half, sizeof half);
    }
}

template <typename T>
[[gnu::always_inline]] inline void DecodeBf16(const std::byte* bytes, size_t count, T* out) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        std::memcpy(&half, bytes + i * sizeof half, sizeof half);
        out[i] = static_cast<T>(FromBf16(half));
    }
}

void EncodeF16(std::span<const float> values, std::byte* out) {
    NarrowRow(DType::kF16, values, out);
}
void EncodeF16(std::span<const double> values, std::byte* out) {
    for (size_t i = 0; i < values.size(); i++) {
        const uint16_t half = F32ToF16(static_cast<float>(values[i]));
        std::memcpy(out + i * sizeof half, &half, sizeof half);
    }
}
void DecodeF16(const std::byte* bytes, std::span<float> out) {
    WidenRow(DType::kF16, bytes, out);
}
void DecodeF16(const std::byte* bytes, std::span<double> out) {
    for (size_t i = 0; i < out.size(); i++) {
        uint16_t half;
        std::memcpy(&half, bytes + i * sizeof half, sizeof half);
        out[i] = F16ToF32(half);
    }
}

// A block's scale: largest magnitude / 127, or NaN if a value is not finite.
template <typename T>
[[gnu::always_inline]] inline float ScaleOf(const T* values, size_t count) {
    uint32_t most = 0;  // magnitudes sort like their bits, with NaN above all
    for (size_t i = 0; i < count; i++) {
        const float value = static_cast<float>(values[i]);
        most = std::max(most, std::bit_cast<uint32_t>(value) & 0x7fffffff);
    }
    if (most >= 0x7f800000) return std::bit_cast<float>(0x7fc00000u);
    const float magnitude = std::bit_cast<float>(most);
    return magnitude < kQ8Zero ? 0.0f : magnitude / 127.0f;
}

template <typename T>
[[gnu::always_inline]] inline void EncodeQ8(const T* values, size_t count, std::byte* out) {
    for (size_t begin = 0; begin < count; begin += kQ8Block, out += kQ8BlockBytes) {
        const size_t n = std::min(kQ8Block, count - begin);
        const float scale = ScaleOf(values + begin, n);
        const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
        std::memcpy(out, &scale, sizeof scale);
        auto* steps = reinterpret_cast<int8_t*>(out + sizeof scale);
        for (size_t i = 0; i < n; i++) {
            // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
            const float step = static_cast<float>(values[begin + i]) * inverse;
            const float whole = step + 0x1.8p23f;
            steps[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(whole) & 0xff);
        }
    }
}

template <typename T>
[[gnu::always_inline]] inline void DecodeQ8(const std::byte* bytes, size_t count, T* out) {
    for (size_t begin = 0; begin < count; begin += kQ8Block, bytes += kQ8BlockBytes) {
        const size_t n = std::min(kQ8Block, count - begin);
        float scale;
        std::memcpy(&scale, bytes, sizeof scale);
        const auto* steps = reinterpret_cast<const int8_t*>(bytes + sizeof scale);
        for (size_t i = 0; i < n; i++) {
            out[begin + i] = static_cast<T>(static_cast<float>(steps[i]) * scale);
        }
    }
}

template <typename T>
[[gnu::always_inline]] inline void EncodeLoop(WireType wire, std::span<const T> values,
                                              std::byte* out) {
    switch (wire) {
        case WireType::kFull: std::memcpy(out, values.data(), values.size_bytes()); return;
        case WireType::kBF16: return EncodeBf16(values.data(), values.size(), out);
        case WireType::kQ8: return EncodeQ8(values.data(), values.size(), out);
        case WireType::kF16: return;  // EncodeAll
    }
}

template <typename T>
[[gnu::always_inline]] inline void DecodeLoop(WireType wire, const std::byte* bytes,
                                              std::span<T> out) {
    switch (wire) {
        case WireType::kFull: std::memcpy(out.data(), bytes, out.size_bytes()); return;
        case WireType::kBF16: return DecodeBf16(bytes, out.size(), out.data());
        case WireType::kQ8: return DecodeQ8(bytes, out.size(), out.data());
        case WireType::kF16: return;  // DecodeAll
    }
}

#if defined(__x86_64__)
// Wider vectors give the same results, only faster.
template <typename T>
__attribute__((target("avx2"))) void EncodeWide(WireType wire, std::span<const T> values,
                                                std::byte* out) {
    EncodeLoop(wire, values, out);
}

template <typename T>
__attribute__((target("avx2"))) void DecodeWide(WireType wire, const std::byte* bytes,
                                                std::span<T> out) {
    DecodeLoop(wire, bytes, out);
}
#endif

template <typename T>
void EncodeAll(WireType wire, std::span<const T> values, std::byte* out) {
    if (wire == WireType::kF16) return EncodeF16(values, out);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return EncodeWide(wire, values, out);
#endif
    EncodeLoop(wire, values, out);
}

template <typename T>
void DecodeAll(WireType wire, const std::byte* bytes, std::span<T> out) {
    if (wire == WireType::kF16) return DecodeF16(bytes, out);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return DecodeWide(wire, bytes, out);
#endif
    DecodeLoop(wire, bytes, out);
}

// The sums of the values from `begin` on, as many as fit, at most kBlock.
template <typename T>
void SumBlock(WireType wire, std::span<const std::byte* const> addends, size_t begin,
              std::span<T> sums) {
    T decoded[kBlock];
    const size_t at = WireBytes(wire, begin, sizeof(T));
    DecodeAll(wire, addends[0] + at, sums);
    for (size_t k = 1; k < addends.size(); k++) {
        DecodeAll(wire, addends[k] + at, std::span(decoded, sums.size()));
        for (size_t i = 0; i < sums.size(); i++) sums[i] += decoded[i];
    }
}

template <typename T>
void SumAllWire(WireType wire, std::span<const std::byte* const> addends, std::span<T> out) {
    if (wire == WireType::kFull) return SumInOrder(addends, out.data(), out.size());
    for (size_t begin = 0; begin < out.size(); begin += kBlock) {
        SumBlock(wire, addends, begin, out.subspan(begin, std::min(kBlock, out.size() - begin)));
    }
}

template <typename T>
void AddAll(WireType wire, const std::byte* bytes, std::span<T> out) {
    if (wire == WireType::kFull) {
        const std::byte* const addends[] = {bytes, std::as_bytes(out).data()};
        return SumInOrder(addends, out.data(), out.size());
    }
    T decoded[kBlock];
    for (size_t begin = 0; begin < out.size(); begin += kBlock) {
        const std::span<T> sums = out.subspan(begin, std::min(kBlock, out.size() - begin));
        DecodeAll(wire, bytes + WireBytes(wire, begin, sizeof(T)), std::span(decoded, sums.size()));
        for (size_t i = 0; i < sums.size(); i++) sums[i] = decoded[i] + sums[i];
    }
}

}  // namespace

size_t WireBytes(WireType wire, size_t count, size_t value_bytes) {
    switch (wire) {
        case WireType::kFull: return count * value_bytes;
        case WireType::kBF16:
        case WireType::kF16: return count * sizeof(uint16_t);
        case WireType::kQ8: return count + (count + kQ8Block - 1) / kQ8Block * sizeof(float);
    }
    return 0;
}

size_t WireValues(WireType wire, size_t bytes, size_t value_bytes) {
    switch (wire) {
        case WireType::kFull: return bytes / value_bytes;
        case WireType::kBF16:
        case WireType::kF16: return bytes / sizeof(uint16_t);
        case WireType::kQ8: return bytes / kQ8BlockBytes * kQ8Block;
    }
    return 0;
}

void Encode(WireType wire, std::span<const float> values, std::byte* out) {
    EncodeAll(wire, values, out);
}
void Encode(WireType wire, std::span<const double> values, std::byte* out) {
    EncodeAll(wire, values, out);
}
void Decode(WireType wire, const std::byte* bytes, std::span<float> out) {
    DecodeAll(wire, bytes, out);
}
void Decode(WireType wire, const std::byte* bytes, std::span<double> out) {
    DecodeAll(wire, bytes, out);
}
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<float> out) {
    SumAllWire(wire, addends, out);
}
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<double> out) {
    SumAllWire(wire, addends, out);
}
void SumEncodedRounded(WireType wire, std::span<const std::byte* const> addends,
                       std::span<float> out) {
    if (wire == WireType::kFull) return SumInOrderRounded(addends, out.data(), out.size());
    double sums[kBlock];
    for (size_t begin = 0; begin < out.size(); begin += kBlock) {
        const size_t count = std::min(kBlock, out.size() - begin);
        SumBlock(wire, addends, begin, std::span(sums, count));
        RoundToFloat(sums, out.data() + begin, count);
    }
}
void AddEncoded(WireType wire, const std::byte* bytes, std::span<float> out) {
    AddAll(wire, bytes, out);
}
void AddEncoded(WireType wire, const std::byte* bytes, std::span<double> out) {
    AddAll(wire, bytes, out);
}

}  // namespace weft::coll
