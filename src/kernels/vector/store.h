// Stores the sums of a strip to the rows of y.
#pragma once

#include <algorithm>

#include "kernels/vector/twice.h"

namespace weft::kernels::WEFT_SET {

// Number of vectors per strip.
inline constexpr int kParts = static_cast<int>(kStripRows) / Simd::kLanes;

// Stores one token's sums, plus the bias, for the kLanes rows from `row` on; for fewer rows at the
// end of the matrix.
WEFT_INLINE void StoreSums(const MatMulArgs& args, int64_t row, int64_t token, Float sums) {
    const int64_t left = args.weight.rows - row;
    if (left <= 0) return;
    if (args.bias != nullptr) sums = Simd::Add(sums, Simd::LoadUpTo(args.bias + row, left));
    if (args.wide != nullptr) {
        alignas(64) double wide[Simd::kLanes];
        Simd::StoreWide(wide, Simd::Widen(sums));
        std::copy_n(wide, std::min<int64_t>(left, Simd::kLanes),
                    args.wide + token * args.y_stride + row);
        return;
    }
    Simd::StoreUpTo(args.y + token * args.y_stride + row, sums, left);
}

// As StoreSums, for float64 sums. Rounds them once, or stores them unrounded.
WEFT_INLINE void StoreWide(const MatMulArgs& args, int64_t row, int64_t token, Wide sums) {
    if (args.wide == nullptr) return StoreSums(args, row, token, Simd::Narrow(sums));
    const int64_t left = args.weight.rows - row;
    if (left <= 0) return;
    alignas(64) double wide[Simd::kLanes];
    Simd::StoreWide(wide, sums);
    std::copy_n(wide, std::min<int64_t>(left, Simd::kLanes),
                args.wide + token * args.y_stride + row);
}

// The same for all rows of a strip that has two vectors.
WEFT_INLINE void StoreSums(const MatMulArgs& args, int64_t row, int64_t token,
                           Twice<Simd>::Float sums) {
    StoreSums(args, row, token, sums.a);
    StoreSums(args, row + Simd::kLanes, token, sums.b);
}
WEFT_INLINE void StoreWide(const MatMulArgs& args, int64_t row, int64_t token,
                           Twice<Simd>::Wide sums) {
    StoreWide(args, row, token, sums.a);
    StoreWide(args, row + Simd::kLanes, token, sums.b);
}

}  // namespace weft::kernels::WEFT_SET
