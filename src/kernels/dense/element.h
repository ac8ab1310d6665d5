// How the elements of a matrix are stored, and views of matrices that say so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace weft::kernels::dense {

// Kernels compute in float32 whatever stands in memory: bfloat16 and float16 are widened when they
// are read and rounded to nearest even when they are written. Of bfloat16 denormals may become
// zeros; of float16 (IEEE 754 binary16) they stay, and what is beyond its range becomes infinite.
enum class Element : uint8_t { kF32, kBf16, kF16 };

// A float16 in memory. (uint16_t is a bfloat16.)
struct Half {
    uint16_t bits = 0;
};

constexpr int64_t ElementBytes(Element type) {
    return type == Element::kF32 ? 4 : 2;
}

// Rows are `stride` elements apart. Of kF32 the data are floats, of kBf16 uint16_t, of
// kF16 Half.
struct Matrix {
    void* data = nullptr;
    int64_t stride = 0;
    Element type = Element::kF32;

    // The matrix whose first element is (row, col) of this one.
    Matrix From(int64_t row, int64_t col) const {
        auto* bytes = static_cast<std::byte*>(data);
        return {bytes + (row * stride + col) * ElementBytes(type), stride, type};
    }
    template <typename T>
    T* Row(int64_t row) const {
        return static_cast<T*>(data) + row * stride;
    }
};

struct ConstMatrix {
    const void* data = nullptr;
    int64_t stride = 0;
    Element type = Element::kF32;

    ConstMatrix() = default;
    ConstMatrix(const void* at, int64_t row_stride, Element element = Element::kF32)
        : data(at), stride(row_stride), type(element) {}
    ConstMatrix(const Matrix& m) : data(m.data), stride(m.stride), type(m.type) {}

    ConstMatrix From(int64_t row, int64_t col) const {
        const auto* bytes = static_cast<const std::byte*>(data);
        return {bytes + (row * stride + col) * ElementBytes(type), stride, type};
    }
    template <typename T>
    const T* Row(int64_t row) const {
        return static_cast<const T*>(data) + row * stride;
    }
};

// Calls f with a zero of the C++ type of each element type: float or Narrow.
// (Always inline, so that what an instruction set makes of it stays within its own functions.)
template <typename Narrow, typename F>
[[gnu::always_inline]] inline void WithNarrow(const F& f) {
    f();
}
template <typename Narrow, typename F, typename... Elements>
[[gnu::always_inline]] inline void WithNarrow(const F& f, Element first, Elements... rest) {
    if (first == Element::kF32) {
        WithNarrow<Narrow>([&](auto... types) { f(float{}, types...); }, rest...);
    } else {
        WithNarrow<Narrow>([&](auto... types) { f(Narrow{}, types...); }, rest...);
    }
}

// The same with each type's own: float, uint16_t or Half. This is the one branch that a kernel
// makes for its types. No call has both narrow types.
template <typename F, typename... Elements>
[[gnu::always_inline]] inline void WithTypes(const F& f, Elements... types) {
    const bool half = ((types == Element::kF16) || ...);
    if (!half) return WithNarrow<uint16_t>(f, types...);
    WEFT_CHECK(((types != Element::kBf16) && ...));
    WithNarrow<Half>(f, types...);
}

}  // namespace weft::kernels::dense
