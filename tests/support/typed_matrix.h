// Matrices of every element type for tests of dense kernels.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "support/dense_elements.h"
#include "support/kernel_levels.h"

namespace weft::kernels::test {

using dense::Element;

inline constexpr float kGapElement = -777.0f;

// A random matrix of any type with a stride. At() returns an element as a float. Elements after a
// row's columns hold kGapElement.
struct Typed {
    int64_t rows, cols, stride;
    Element type;
    std::vector<float> floats;
    std::vector<uint16_t> halves;

    Typed(Random& random, int64_t row_count, int64_t col_count, Element element, float size = 1)
        : rows(row_count), cols(col_count), stride(col_count + random.Int(0, 3)), type(element) {
        const auto count = static_cast<size_t>(rows * stride);
        floats.assign(count, kGapElement);
        halves.assign(count, dense::Narrowed(type, kGapElement));
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) Set(i, j, size * random.Normal());
        }
    }
    size_t Index(int64_t i, int64_t j) const { return static_cast<size_t>(i * stride + j); }
    float At(int64_t i, int64_t j) const {
        const size_t at = Index(i, j);
        return type == Element::kF32 ? floats[at] : dense::Widened(type, halves[at]);
    }
    void Set(int64_t i, int64_t j, float x) {
        floats[Index(i, j)] = x;
        halves[Index(i, j)] = dense::Narrowed(type, x);
    }
    dense::Matrix View() {
        if (type == Element::kF32) return {floats.data(), stride, type};
        return {halves.data(), stride, type};
    }
    float* data() { return floats.data(); }  // of kF32
    // Poisons all elements: a kernel must write all elements of its part.
    void Poison() {
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) Set(i, j, NAN);
        }
    }
    // The bytes of the matrix: results must not depend on parts.
    std::vector<uint32_t> Bits() const {
        std::vector<uint32_t> bits;
        for (const float x : floats) bits.push_back(std::bit_cast<uint32_t>(x));
        if (type != Element::kF32) bits.assign(halves.begin(), halves.end());
        return bits;
    }

    // Checks a result with error `bound` before rounding to the type.
    void CheckNear(int64_t i, int64_t j, double expected, double bound, const char* what) const {
        bound += dense::Rounding(type, std::abs(expected) + bound);
        EXPECT_LE(std::abs(At(i, j) - expected), bound)
            << what << " [" << i << ", " << j << "]: " << At(i, j) << ", not " << expected;
    }
    void ExpectGaps() const {
        const float untouched = dense::Stored(type, kGapElement);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = cols; j < stride; ++j) ASSERT_EQ(At(i, j), untouched);
        }
    }
};

// Calls test(kernels, random) for some seeds on every level of this CPU.
template <typename F>
void ForLevelsAndSeeds(const F& test) {
    for (const Ops& level : OpLevels()) {
        for (uint32_t seed = 0; seed < 40; ++seed) {
            SCOPED_TRACE(testing::Message() << level.name << ", seed " << seed);
            Random random(seed);
            test(static_cast<const Kernels&>(level), random);
            if (testing::Test::HasFailure()) return;
        }
    }
}

// Runs all parts of `kernel`, the last one first, for 1 to 5 parts. `reset` runs before each;
// `result` must return the same each time.
template <typename Kernel, typename Reset, typename Result>
void ExpectSameInParts(const Kernel& kernel, const Reset& reset, const Result& result) {
    reset();
    kernel(0, 1);
    const auto whole = result();
    for (int parts = 2; parts <= 5; ++parts) {
        reset();
        for (int part = parts - 1; part >= 0; --part) kernel(part, parts);
        ASSERT_EQ(result(), whole) << parts << " parts";
    }
}

// A type for each matrix of a call: float32 or one narrow type.
struct Types {
    explicit Types(Random& source)
        : random(source), narrow(source.Pick({Element::kBf16, Element::kF16})) {}
    Element Any() const { return random.Pick({Element::kF32, narrow}); }
    Random& random;
    const Element narrow;
};

// Scratch memory of all parts, filled with NaN.
class Scratch {
  public:
    explicit Scratch(int64_t part_bytes, int parts = 5)
        : bytes(part_bytes), floats_(static_cast<size_t>(part_bytes * parts / 4 + 16), NAN) {}
    std::byte* data() {
        void* at = floats_.data();
        size_t room = floats_.size() * 4;
        return static_cast<std::byte*>(std::align(64, room - 64, at, room));
    }
    const int64_t bytes;  // of one part

  private:
    std::vector<float> floats_;
};

}  // namespace weft::kernels::test
