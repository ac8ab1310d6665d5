#include "tensor/dynamic_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace weft {
namespace {

// Nearest looks a code up by sign, exponent and 7 bits of mantissa. Magnitudes below 2^-23 share
// the bucket of 0, and none is above 1. The table therefore fits the L1 cache, and at most one code
// begins in each bucket.
constexpr uint32_t kDropped = 16;  // low bits of a float that the bucket ignores
constexpr uint32_t kLeast = (127 - 23) << 7, kMost = 127 << 7;
constexpr uint32_t kBuckets = kMost - kLeast + 1;  // per sign

uint32_t BucketOf(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t key = std::clamp((bits & 0x7fffffffu) >> kDropped, kLeast, kMost) - kLeast;
    return key + (bits >> 31) * kBuckets;
}
// The smallest and the largest number of a bucket.
std::pair<float, float> EndsOf(uint32_t bucket) {
    const uint32_t key = bucket % kBuckets + kLeast;
    const float low = key == kLeast ? 0.0f : std::bit_cast<float>(key << kDropped);
    const float high = std::bit_cast<float>(((key + 1) << kDropped) - 1);
    return bucket < kBuckets ? std::pair(low, high) : std::pair(-high, -low);
}

// The largest magnitude, ignoring NaNs. (Compares integers, so that the compiler vectorizes it.)
float LargestOf(std::span<const float> values) {
    int32_t most = 0;
    for (const float x : values) {
        const int32_t bits = std::bit_cast<int32_t>(x) & 0x7fffffff;
        most = std::max(most, bits > 0x7f800000 ? 0 : bits);
    }
    return std::bit_cast<float>(most);
}

}  // namespace

DynamicCodes::DynamicCodes(bool is_signed) {
    std::vector<double> positive;
    for (int e = 0; e < 7; ++e) {
        const int steps = 1 << ((is_signed ? 6 : 7) - e);
        for (int i = 0; i < steps; ++i) {
            positive.push_back((0.1 + 0.9 * (i + 0.5) / steps) * std::pow(10.0, -e));
        }
    }
    std::vector<double> all = positive;
    all.insert(all.end(), {0.0, 1.0});
    if (is_signed) {
        const double least = *std::ranges::min_element(positive);
        for (const double value : positive) all.push_back(value == least ? -1.0 : -value);
    }
    std::ranges::sort(all);
    std::ranges::transform(all, values_.begin(), [](double x) { return static_cast<float>(x); });
    for (size_t i = 0; i + 1 < values_.size(); ++i) {
        middles_[i] = static_cast<float>((double{values_[i]} + double{values_[i + 1]}) / 2);
    }
    middles_.back() = INFINITY;
    const auto code_of = [&](float x) {
        return std::ranges::upper_bound(middles_, x) - middles_.begin();
    };
    first_.resize(2 * kBuckets);
    for (uint32_t bucket = 0; bucket < first_.size(); ++bucket) {
        const auto [low, high] = EndsOf(bucket);
        first_[bucket] = static_cast<uint8_t>(code_of(low));
        WEFT_CHECK(code_of(high) <= code_of(low) + 1);
    }
}

uint8_t DynamicCodes::Nearest(float x) const {
    const uint8_t code = first_[BucketOf(x)];
    const auto nearest = static_cast<uint8_t>(code + (middles_[code] <= x ? 1 : 0));
    return std::isnan(x) ? 0 : nearest;
}

void Widen(const DynamicCodes& codes, std::span<const uint8_t> from, float scale,
           std::span<float> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = codes.value(from[i]) * scale;
}

float Narrow(const DynamicCodes& codes, std::span<const float> from, std::span<uint8_t> to) {
    const float scale = LargestOf(from);
    std::array<float, kStateBlock> scaled;
    for (size_t i = 0; i < from.size(); ++i) scaled[i] = scale > 0 ? from[i] / scale : 0.0f;
    for (size_t i = 0; i < from.size(); ++i) to[i] = codes.Nearest(scaled[i]);
    return scale;
}

const DynamicCodes& SignedCodes() {
    static const DynamicCodes codes(true);
    return codes;
}
const DynamicCodes& UnsignedCodes() {
    static const DynamicCodes codes(false);
    return codes;
}

}  // namespace weft
