// Wire types of all_reduce that are smaller than the values, which are rounded.
//
// bf16   2 bytes per value: the value is rounded to float, then to bfloat16.
//        |decoded - x| <= 2^-8 |x| (and 2^-126 near zero); beyond its range infinite.
// q8     1 + 1/16 bytes per value: blocks of 64 values share a float scale = m / 127, where m is
//        the largest magnitude in the block. A value is rounded to the nearest integer from -127 to
//        127 times the scale.
//        |decoded - x| <= kQ8Error m (and 2^-100 near zero). A block that holds an infinite value
//        or a NaN is all NaN.
// f16    2 bytes per value: the value is rounded to float, then to IEEE 754 binary16.
//        |decoded - x| <= 2^-11 |x| (and 2^-25 near zero); beyond its range infinite.
// All ranks decode the same bytes and sum in the same order, so all have the same bits. For this, a
// rank also rounds its own addend. The error of a one-shot sum over n ranks is at most the sum of n
// such errors, plus the rounding of the additions. A two-shot sum has one further such error,
// because the sum is rounded, too.
#pragma once

#include <cstddef>
#include <span>

#include "coll/tuning.h"

namespace weft::coll {

inline constexpr size_t kQ8Block = 64;
// Maximum error of a q8 value, relative to m: half a step of 1/127, plus a margin for the rounding
// of scale and product in float.
inline constexpr double kQ8Error = 0.5 / 127 * (1 + 1e-4);

// Size in bytes of `count` values in the wire type; value_bytes is the size of a value in memory.
size_t WireBytes(WireType wire, size_t count, size_t value_bytes);
// The largest number of values that fit into `bytes` bytes of the wire type.
size_t WireValues(WireType wire, size_t bytes, size_t value_bytes);

// out: space for WireBytes() bytes. kFull copies the values; the bytes must then have the alignment
// of the values.
void Encode(WireType wire, std::span<const float> values, std::byte* out);
void Encode(WireType wire, std::span<const double> values, std::byte* out);
void Decode(WireType wire, const std::byte* bytes, std::span<float> out);
void Decode(WireType wire, const std::byte* bytes, std::span<double> out);
// out[i] = (decoded[0][i] + decoded[1][i]) + ...
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<float> out);
void SumEncoded(WireType wire, std::span<const std::byte* const> addends, std::span<double> out);
// SumEncoded for doubles; each sum is then rounded to float.
void SumEncodedRounded(WireType wire, std::span<const std::byte* const> addends,
                       std::span<float> out);
// out[i] = decoded[i] + out[i]
void AddEncoded(WireType wire, const std::byte* bytes, std::span<float> out);
void AddEncoded(WireType wire, const std::byte* bytes, std::span<double> out);

}  // namespace weft::coll
