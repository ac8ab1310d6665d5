// Eight floats of AVX2 that come from and go to float32 or bfloat16: what the dense kernels' rows
// and tiles are made of. Only for files of this folder, as simd.h.
#pragma once

#include <algorithm>

#include "kernels/avx2/simd.h"

namespace weft::kernels::avx2 {

struct Lanes : Simd {
    using Simd::Load, Simd::Store, Simd::LoadFirst, Simd::StoreFirst;
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static void Store(uint16_t* to, Float x) { StoreBF16(to, x); }
    static Float LoadFirst(const uint16_t* from, int64_t count) {
        uint16_t first[kLanes] = {};
        std::copy_n(from, count, first);
        return LoadBF16(first);
    }
    static void StoreFirst(uint16_t* to, Float x, int64_t count) {
        uint16_t all[kLanes];
        StoreBF16(all, x);
        std::copy_n(all, count, to);
    }
    static Float Sqrt(Float x) { return _mm256_sqrt_ps(x); }
};

}  // namespace weft::kernels::avx2
