// Converts plain rows of a KV cache (V, latents, index keys) to floats.
#pragma once

#include <cstring>

#include "kernels/vector/cache_blocks.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// to: [width]; the cache may have any type.
WEFT_INLINE void WidenRow(DType dtype, const std::byte* from, int64_t width, float* to) {
    if (Info(dtype).quantized) {
        return WithCacheBlock(dtype, [&](auto type) {
            ConvertBlocks<decltype(type)>(from, width / kCacheBlock, to);
        });
    }
    if (dtype == DType::kF32) {
        std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
        return;
    }
    const auto load = [&](const std::byte* at) {
        return dtype == DType::kF16 ? Simd::LoadF16(at) : Simd::LoadBF16(at);
    };
    int64_t d = 0;
    for (; d + Simd::kLanes <= width; d += Simd::kLanes) {
        Simd::Store(to + d, load(from + 2 * d));
    }
    if (d == width) return;
    std::byte tail[2 * Simd::kLanes] = {};
    std::memcpy(tail, from + 2 * d, static_cast<size_t>(2 * (width - d)));
    Simd::StoreFirst(to + d, load(tail), width - d);
}

}  // namespace weft::kernels::WEFT_SET
