// Wire types of an all_reduce's values: smaller than the values, and rounded.
//
// bf16   2 bytes a value: the nearest bfloat16 of the nearest float.
//        |decoded - x| <= 2^-8 |x| (and 2^-126 near zero); beyond its range infinite.
// q8     1 + 1/16 bytes a value: blocks of 64 share a float scale = m / 127, m the block's largest
//        magnitude; a value is rounded to the nearest of -127 to 127 times the scale.
//        |decoded - x| <= kQ8Error m (and 2^-100 near zero). A block that holds an infinite value
//        or a NaN is all NaN.
// f16    2 bytes a value: the nearest IEEE 754 binary16 of the nearest float.
//        |decoded - x| <= 2^-11 |x| (and 2^-25 near zero); beyond its range infinite.
// All ranks decode the same bytes and sum in the same order, so they have the same bits; a rank's
// own addend is rounded too. The error of a one-shot sum over n ranks is at most the sum of n such
// errors (and the rounding of the sum itself); a two-shot sum adds one such error, for the sum.
#pragma once

#include <cstddef>
#include <span>

#include "coll/tuning.h"

namespace weft::coll {

inline constexpr size_t kQ8Block = 64;
// Half a step of 1/127, and a margin for the rounding of scale and product in float.
inline constexpr double kQ8Error = 0.5 / 127 * (1 + 1e-4);

// Bytes of `count` values whose full size is `value_bytes` each.
size_t WireBytes(WireType wire, size_t count, size_t value_bytes);
// The most values that fit in `bytes`.
size_t WireValues(WireType wire, size_t bytes, size_t value_bytes);

// out: WireBytes of `values`. kFull copies; its bytes have the alignment of the values.
void Encode(WireType wire, std::span<const float> values, std::byte* out);
void Encode(WireType wire, std::span<const double> values, std::byte* out);
void Decode(WireType wire, const std::byte* bytes, std::span<float> out);
void Decode(WireType wire, const std::byte* bytes, std::span<double> out);
// out[i] = (decoded[0][i] + decoded[1][i]) + ...
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<float> out);
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<double> out);
// The sum of doubles, rounded to float.
void SumEncodedRounded(WireType wire, std::span<const std::byte* const> addends,
                       std::span<float> out);
// out[i] = decoded[i] + out[i]
void AddEncoded(WireType wire, const std::byte* bytes, std::span<float> out);
void AddEncoded(WireType wire, const std::byte* bytes, std::span<double> out);

}  // namespace weft::coll
