// Vectors with a lane for each of the 16 rows of a strip: one vector of the instruction set, or two
// vectors of 8 lanes. With two vectors, products use a whole cache line of weights at once, and
// load an activation once for 16 rows.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

#define WEFT_TWICE [[gnu::always_inline]] static
#define WEFT_TWICE_0(name, Out)        \
    WEFT_TWICE Out name() {            \
        return {S::name(), S::name()}; \
    }
#define WEFT_TWICE_1(name, Out, X)           \
    WEFT_TWICE Out name(X x) {               \
        return {S::name(x.a), S::name(x.b)}; \
    }
#define WEFT_TWICE_2(name, Out, X, Y)                  \
    WEFT_TWICE Out name(X x, Y y) {                    \
        return {S::name(x.a, y.a), S::name(x.b, y.b)}; \
    }
#define WEFT_TWICE_3(name, X, Y, Z)                              \
    WEFT_TWICE Z name(X x, Y y, Z z) {                           \
        return {S::name(x.a, y.a, z.a), S::name(x.b, y.b, z.b)}; \
    }
#define WEFT_TWICE_SET(name, Out, X)     \
    WEFT_TWICE Out name(X x) {           \
        return {S::name(x), S::name(x)}; \
    }
#define WEFT_TWICE_SHIFT(name)                           \
    WEFT_TWICE Int name(Int x, int bits) {               \
        return {S::name(x.a, bits), S::name(x.b, bits)}; \
    }
#define WEFT_TWICE_LOAD(name, Out, kBytes)                    \
    WEFT_TWICE Out name(const void* from) {                   \
        return {S::name(from), S::name(After(from, kBytes))}; \
    }

// The functions of the class S (set.h) that products use, for two vectors.
template <typename S>
struct Twice {
    struct Float {
        typename S::Float a, b;
    };
    struct Wide {
        typename S::Wide a, b;
    };
    struct Int {
        typename S::Int a, b;
    };
    using Short = Int;
    static constexpr int kLanes = 2 * S::kLanes;
    static constexpr bool kMatrices = S::kMatrices, kPairSums = S::kPairSums;

    WEFT_TWICE_0(Zero, Float)
    WEFT_TWICE_0(WideZero, Wide)
    WEFT_TWICE_0(IntZero, Int)
    WEFT_TWICE_0(ShortZero, Short)
    WEFT_TWICE_SET(Set, Float, float)
    WEFT_TWICE_SET(Set32, Int, int32_t)
    WEFT_TWICE_SET(Set8, Int, int)
    WEFT_TWICE_SET(Table, Int, const void*)

    WEFT_TWICE Short StartShort(int32_t from, int left) {
        return {S::StartShort(from, left), S::StartShort(from, left)};
    }

    WEFT_TWICE Float Load(const float* from) { return {S::Load(from), S::Load(from + S::kLanes)}; }
    WEFT_TWICE Wide LoadWide(const double* from) {
        return {S::LoadWide(from), S::LoadWide(from + S::kLanes)};
    }
    WEFT_TWICE_LOAD(LoadInt, Int, 4)
    WEFT_TWICE_LOAD(LoadF16, Float, 2)
    WEFT_TWICE_LOAD(WidenU16, Int, 2)
    WEFT_TWICE_LOAD(WidenU8, Int, 1)
    WEFT_TWICE_LOAD(WidenI8, Int, 1)
    WEFT_TWICE Int Gather(const uint16_t* table, Int index) {
        return {S::Gather(table, index.a), S::Gather(table, index.b)};
    }
    WEFT_TWICE void Store(float* to, Float x) { S::Store(to, x.a), S::Store(to + S::kLanes, x.b); }
    WEFT_TWICE void StoreInt(uint8_t* to, Int x) {
        S::StoreInt(to, x.a), S::StoreInt(to + 4 * S::kLanes, x.b);
    }

    WEFT_TWICE_1(FromInt, Float, Int)
    WEFT_TWICE_1(FromF16, Float, Int)
    WEFT_TWICE_1(AsFloat, Float, Int)
    WEFT_TWICE_1(Widen, Wide, Float)
    WEFT_TWICE_1(Whole, Int, Short)
    WEFT_TWICE_2(Add, Float, Float, Float)
    WEFT_TWICE_2(Sub, Float, Float, Float)
    WEFT_TWICE_2(Mul, Float, Float, Float)
    WEFT_TWICE_2(AddWide, Wide, Wide, Wide)
    WEFT_TWICE_2(And, Int, Int, Int)
    WEFT_TWICE_2(Or, Int, Int, Int)
    WEFT_TWICE_2(Xor, Int, Int, Int)
    WEFT_TWICE_2(Add32, Int, Int, Int)
    WEFT_TWICE_2(Sub32, Int, Int, Int)
    WEFT_TWICE_2(Mul32, Int, Int, Int)
    WEFT_TWICE_2(Max32, Int, Int, Int)
    WEFT_TWICE_2(Add8, Int, Int, Int)
    WEFT_TWICE_2(Sub8, Int, Int, Int)
    WEFT_TWICE_2(Equal8, Int, Int, Int)
    WEFT_TWICE_2(Choose, Int, Int, Int)
    WEFT_TWICE_2(WholeScaled, Int, Short, Int)
    WEFT_TWICE_3(Fma, Float, Float, Float)
    WEFT_TWICE_3(Dot, Int, Int, Short)
    WEFT_TWICE_3(DotSigned, Int, Int, Int)
    WEFT_TWICE_SHIFT(Left32)
    WEFT_TWICE_SHIFT(Right32)
    WEFT_TWICE_SHIFT(Left8)
    WEFT_TWICE_SHIFT(Right8)

    // For sets with kMatrices.
    WEFT_TWICE auto PairRows(Int x, Int y) {
        struct Rows {
            decltype(S::PairRows(x.a, y.a)) a, b;
        };
        return Rows{S::PairRows(x.a, y.a), S::PairRows(x.b, y.b)};
    }
    WEFT_TWICE auto PairTokens(const int8_t* x, const int8_t* y) { return S::PairTokens(x, y); }
    template <typename Rows, typename Tokens>
    WEFT_TWICE void DotMatrices(const Rows& rows, const Tokens& x, Int& first, Int& second) {
        S::DotMatrices(rows.a, x, first.a, second.a), S::DotMatrices(rows.b, x, first.b, second.b);
    }
    WEFT_TWICE void Arrange(Int& x, Int& y) { S::Arrange(x.a, y.a), S::Arrange(x.b, y.b); }
    WEFT_TWICE void Settle(Int& x, Int& y) { S::Settle(x.a, y.a), S::Settle(x.b, y.b); }

  private:
    WEFT_TWICE const std::byte* After(const void* from, int64_t bytes_per_lane) {
        return static_cast<const std::byte*>(from) + bytes_per_lane * S::kLanes;
    }
};

using Strip = std::conditional_t<Simd::kLanes == kStripRows, Simd, Twice<Simd>>;
using Floats = Strip::Float;
using Wides = Strip::Wide;
using Ints = Strip::Int;

}  // namespace weft::kernels::WEFT_SET
