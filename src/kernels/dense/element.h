// How the elements of a matrix are stored, and views of matrices that say so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::kernels::dense {

// Kernels compute in float32 whatever stands in memory: bfloat16 is widened when it is read and
// rounded to nearest even when it is written (denormals may become zeros).
enum class Element : uint8_t { kF32, kBf16 };

constexpr int64_t ElementBytes(Element type) {
    return type == Element::kF32 ? 4 : 2;
}

// Rows are `stride` elements apart. Of kF32 the data are floats, of kBf16 uint16_t.
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

// Calls f with a zero of the C++ type of each element type: float or uint16_t. This is the one
// branch that a kernel makes for its types.
template <typename F>
void WithTypes(const F& f) {
    f();
}
template <typename F, typename... Elements>
void WithTypes(const F& f, Element first, Elements... rest) {
    if (first == Element::kF32) {
        WithTypes([&](auto... types) { f(float{}, types...); }, rest...);
    } else {
        WithTypes([&](auto... types) { f(uint16_t{}, types...); }, rest...);
    }
}

}  // namespace weft::kernels::dense
