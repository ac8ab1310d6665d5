// Eight floats of AVX2 that come from and go to float32, bfloat16 or float16: what the dense
// kernels' rows and tiles are made of. Only for files of this folder, as simd.h.
#pragma once

#include <algorithm>

#include "kernels/avx2/simd.h"
#include "kernels/dense/element.h"

namespace weft::kernels::avx2 {

struct Lanes : Simd {
    using Half = dense::Half;
    using Simd::Load, Simd::Store, Simd::LoadFirst, Simd::StoreFirst;
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static Float Load(const Half* from) { return LoadF16(from); }
    static void Store(uint16_t* to, Float x) { StoreBF16(to, x); }
    static void Store(Half* to, Float x) { StoreF16(to, x); }
    template <typename Narrow>
    static Float LoadFirst(const Narrow* from, int64_t count) {
        Narrow first[kLanes] = {};
        std::copy_n(from, count, first);
        return Load(first);
    }
    template <typename Narrow>
    static void StoreFirst(Narrow* to, Float x, int64_t count) {
        Narrow all[kLanes];
        Store(all, x);
        std::copy_n(all, count, to);
    }
    static Float Sqrt(Float x) { return _mm256_sqrt_ps(x); }
};

}  // namespace weft::kernels::avx2
