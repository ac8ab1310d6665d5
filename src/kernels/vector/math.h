// Exponentials of vectors, and loops over the vectors of a row.
#pragma once

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// 2^x, with a relative error below 1e-7 for x in [-126, 0]. Below -126 the result is 2^-126, which
// is negligible for callers and not denormal. NaN gives NaN. Polynomial: minimax on [-0.5, 0.5].
inline Float Exp2(Float x) {
    x = Simd::Max(Simd::Set(-126.0f), x);
    const auto whole = Simd::Round(x);
    const auto r = Simd::Sub(x, whole);
    auto y = Simd::Set(1.534581242594868e-4f);
    y = Simd::Fma(y, r, Simd::Set(1.3399930903688073e-3f));
    y = Simd::Fma(y, r, Simd::Set(9.618489071726799e-3f));
    y = Simd::Fma(y, r, Simd::Set(5.550328642129898e-2f));
    y = Simd::Fma(y, r, Simd::Set(2.4022646248340607e-1f));
    y = Simd::Fma(y, r, Simd::Set(6.931471824645996e-1f));
    y = Simd::Fma(y, r, Simd::Set(1.0f));
    return Simd::Scale(y, whole);
}

// e^x for all floats, with a relative error below 1.2e-7 for normal results. Infinity above 88.7.
// The argument is reduced by ln 2 in two parts (Cody and Waite 1980).
inline Float Exp(Float x) {
    x = Simd::Min(Simd::Set(89.0f), Simd::Max(Simd::Set(-104.0f), x));
    const auto whole = Simd::Round(Simd::Mul(x, Simd::Set(1.44269504f)));
    auto r = Simd::Fnma(whole, Simd::Set(0.693359375f), x);
    r = Simd::Fnma(whole, Simd::Set(-2.12194440e-4f), r);
    auto y = Simd::Set(1.381461275741458e-3f);
    y = Simd::Fma(y, r, Simd::Set(8.368710055947304e-3f));
    y = Simd::Fma(y, r, Simd::Set(4.166838899254799e-2f));
    y = Simd::Fma(y, r, Simd::Set(1.666652113199234e-1f));
    y = Simd::Fma(y, r, Simd::Set(4.999999403953552e-1f));
    y = Simd::Fma(y, Simd::Mul(r, r), r);
    return Simd::Scale(Simd::Add(y, Simd::Set(1.0f)), whole);
}

// tanh(x), relative error below 4e-7: an odd polynomial for |x| < 0.625 (minimax; Moshier's Cephes
// library has the same form), else 1 - 2 / (e^2x + 1).
inline Float Tanh(Float x) {
    const auto one = Simd::Set(1.0f);
    const auto z = Simd::Mul(x, x);
    auto p = Simd::Set(-5.70498872745e-3f);
    p = Simd::Fma(p, z, Simd::Set(2.06390887954e-2f));
    p = Simd::Fma(p, z, Simd::Set(-5.37397155531e-2f));
    p = Simd::Fma(p, z, Simd::Set(1.33314422036e-1f));
    p = Simd::Fma(p, z, Simd::Set(-3.33332819422e-1f));
    const auto small = Simd::Fma(Simd::Mul(p, z), x, x);
    const auto e = Exp(Simd::Add(x, x));
    const auto large = Simd::Sub(one, Simd::Div(Simd::Set(2.0f), Simd::Add(e, one)));
    return Simd::WhereLess(Simd::Abs(x), Simd::Set(0.625f), small, large);
}

// Calls on_vector(i) for each whole vector of [begin, end), then on_tail(i, count) for the rest.
template <typename OnVector, typename OnTail>
inline void ForVectors(int64_t begin, int64_t end, OnVector on_vector, OnTail on_tail) {
    int64_t i = begin;
    for (; i + Simd::kLanes <= end; i += Simd::kLanes) on_vector(i);
    if (i < end) on_tail(i, end - i);
}

// Calls on(load, store) for each vector of [begin, end). load(x) returns the vector's elements of
// x, with zeros past the end; store(y, value) writes the vector's elements of y, but nothing past
// the end.
template <typename On>
inline void ForElements(int64_t begin, int64_t end, On on) {
    ForVectors(
        begin, end,
        [&](int64_t i) {
            on([i](const auto* x) { return Simd::Load(x + i); },
               [i](auto* y, Float value) { Simd::Store(y + i, value); });
        },
        [&](int64_t i, int64_t left) {
            on([i, left](const auto* x) { return Simd::LoadFirst(x + i, left); },
               [i, left](auto* y, Float value) { Simd::StoreFirst(y + i, value, left); });
        });
}

}  // namespace weft::kernels::WEFT_SET
