// Elements of dense matrices in tests: rounding to each type, and its error bound.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/dense/element.h"
#include "tensor/half.h"

namespace weft::kernels::dense {

// Converts to the two bytes of a narrow type, and back.
inline uint16_t Narrowed(Element type, float x) {
    return type == Element::kF16 ? F32ToF16(x) : F32ToBF16(x);
}
inline float Widened(Element type, uint16_t x) {
    return type == Element::kF16 ? F16ToF32(x) : BF16ToF32(x);
}
// The value as an element of the type stores it.
inline float Stored(Element type, float x) {
    return type == Element::kF32 ? x : Widened(type, Narrowed(type, x));
}

// Rounding error of a number of this size: half a unit in the last place, of 8 significant bits
// (denormals may become zero) or of 11 (2^-25 among denormals).
inline double Rounding(Element type, double size) {
    switch (type) {
        case Element::kF32: return 0;
        case Element::kBf16: return std::ldexp(1.0, -8) * std::abs(size) + 1.2e-38;
        case Element::kF16: return std::ldexp(1.0, -11) * std::abs(size) + std::ldexp(1.0, -25);
    }
    return NAN;
}

}  // namespace weft::kernels::dense
