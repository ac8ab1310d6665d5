// Element types of matrices in memory, and typed views of matrices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace weft::kernels::dense {

// Kernels compute in float32 for every element type. Kernels widen bfloat16 and float16 on reads
// and round to nearest even on writes. bfloat16 denormals may become zeros. float16 (IEEE 754
// binary16) keeps denormals, and values beyond its range become infinite.
enum class Element : uint8_t { kF32, kBf16, kF16 };

// A float16 in memory. (uint16_t means bfloat16.)
struct Half {
    uint16_t bits = 0;
};

constexpr int64_t ElementBytes(Element type) {
    return type == Element::kF32 ? 4 : 2;
}

// A view of a matrix. Each row begins `stride` elements after the previous one. The elements are
// float for kF32, uint16_t for kBf16, Half for kF16.
struct Matrix {
    void* data = nullptr;
    int64_t stride = 0;
    Element type = Element::kF32;

    // Returns a view of the same data whose first element is element (row, col) of this matrix.
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

// Calls f with one argument for each of the given element types, a zero of the C++ type: float for
// kF32, Narrow for the other types. (Always inline, so that code for an instruction set stays in
// the functions that are compiled for it.)
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

// Like WithNarrow, but finds Narrow itself, so f gets a float, uint16_t or Half for each element
// type. Kernels branch on element types only here. The types of one call must not include both
// kBf16 and kF16.
template <typename F, typename... Elements>
[[gnu::always_inline]] inline void WithTypes(const F& f, Elements... types) {
    const bool half = ((types == Element::kF16) || ...);
    if (!half) return WithNarrow<uint16_t>(f, types...);
    WEFT_CHECK(((types != Element::kBf16) && ...));
    WithNarrow<Half>(f, types...);
}

}  // namespace weft::kernels::dense
