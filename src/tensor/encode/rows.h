// Encodes rows of any type, pack by pack: the functions of a level (encode/level.h).
// encode/level_*.cc include this header last.
#pragma once

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <algorithm>

#include "tensor/encode/iq.h"
#include "tensor/encode/level.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

// block(pack, groups, dst) encodes the first `groups` groups of the pack to dst.
template <int N, class Block>
void EncodePacks(const EncodeArgs& args, Block block) {
    const DTypeInfo& info = Info(args.dtype);
    const int64_t each = info.block_elements / N;  // groups per block
    const int64_t per_row = args.cols / N;
    const auto rows = static_cast<int64_t>(args.src.size()) / args.cols;
    static thread_local Pack<N> pack;
    for (int64_t row = 0; row < rows; ++row) {
        const float* src = args.src.data() + row * args.cols;
        std::byte* dst = args.dst.data() + row * RowBytes(args.dtype, args.cols);
        for (int64_t g = 0; g < per_row; g += kGroups) {
            const auto groups = static_cast<int>(std::min<int64_t>(kGroups, per_row - g));
            const float* importance =
                args.importance.empty() ? nullptr : args.importance.data() + g * N;
            LoadPack<N>(src + g * N, groups, importance, pack);
            block(pack, groups, dst + g / each * info.block_bytes);
        }
    }
}

// Maps the value of largest magnitude in each block to +-127. With 8-bit codes, a search for a
// better scale gains nothing.
inline void EncodeRowsQ8_0(const EncodeArgs& args) {
    constexpr int kVectors = 32 / kLanes;
    const float* src = args.src.data();
    std::byte* dst = args.dst.data();
    for (size_t b = 0; b < args.src.size() / 32; ++b, src += 32, dst += 34) {
        Lanes most = Abs(Load(src));
        for (int v = 1; v < kVectors; ++v) most = Max(Abs(Load(src + v * kLanes)), most);
        float peak = 0;
        for (int k = 0; k < kLanes; ++k) peak = most[k] > peak ? most[k] : peak;
        const float scale = peak / 127;
        const float inverse = InverseOf(scale);
        PutF16(dst, scale);
        int8_t codes[32];
        for (int v = 0; v < kVectors; ++v) {
            const Lanes q = Load(src + v * kLanes) * inverse;
            const Lanes size = Truncate(Min(Abs(q), Splat(127)) + 0.5f);  // halves away from 0
            StoreBytes(codes + v * kLanes, q < 0.0f ? -size : size);
        }
        std::memcpy(dst + 2, codes, 32);
    }
}

inline void EncodeRows(const EncodeArgs& args) {
    switch (args.dtype) {
        case DType::kQ8_0: return EncodeRowsQ8_0(args);
        case DType::kQ4_0: return EncodePacks<32>(args, EncodeQ4_0);
        case DType::kQ4_1: return EncodePacks<32>(args, EncodeQ4_1);
        case DType::kQ5_0: return EncodePacks<32>(args, EncodeQ5_0);
        case DType::kQ5_1: return EncodePacks<32>(args, EncodeQ5_1);
        case DType::kQ2_K: return EncodePacks<16>(args, EncodeQ2_K);
        case DType::kQ3_K: return EncodePacks<16>(args, EncodeQ3_K);
        case DType::kQ4_K: return EncodePacks<32>(args, EncodeQ4_K);
        case DType::kQ5_K: return EncodePacks<32>(args, EncodeQ5_K);
        case DType::kQ6_K: return EncodePacks<16>(args, EncodeQ6_K);
        case DType::kIQ4_NL: return EncodePacks<32>(args, EncodeIq4Nl);
        case DType::kIQ4_XS: return EncodePacks<32>(args, EncodeIq4Xs);
        case DType::kMXFP4: return EncodePacks<32>(args, EncodeMxfp4);
        case DType::kIQ1_S: return EncodePacks<32>(args, EncodeIq1S);
        case DType::kIQ1_M: return EncodePacks<16>(args, EncodeIq1M);
        case DType::kIQ2_XXS: return EncodePacks<32>(args, EncodeIq2Xxs);
        case DType::kIQ2_XS: return EncodePacks<16>(args, EncodeIq2Xs);
        case DType::kIQ2_S: return EncodePacks<16>(args, EncodeIq2S);
        case DType::kIQ3_XXS: return EncodePacks<32>(args, EncodeIq3Xxs);
        case DType::kIQ3_S: return EncodePacks<32>(args, EncodeIq3S);
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16:
        case DType::kTQ1_0:
        case DType::kTQ2_0: return QuantizeRow(args.dtype, args.src, args.dst);
        case DType::kI32:
        case DType::kF64:
        case DType::kW4:
        case DType::kW8:
        case DType::kNVFP4:
        case DType::kFP8: break;
    }
    WEFT_CHECK(!"the caller must check CanEncode");
}

inline void HalvesToFloats(const std::byte* src, float* dst, size_t count) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8) {
        __m128i halves;
        std::memcpy(&halves, src + 2 * i, sizeof halves);
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < count; ++i) dst[i] = F16ToF32(quant::LoadU16(src + 2 * i));
}

inline void JoinParts(const BlockParts& parts, float* dst, int count) {
    for (int part = 0; part * kPartElements < count; ++part) {
        const Lanes scale = Splat(parts.scale[part]), offset = Splat(parts.offset[part]);
        for (int i = part * kPartElements; i < (part + 1) * kPartElements; i += kLanes) {
            Store(dst + i, LoadBytes(parts.q + i) * scale + offset);
        }
    }
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
