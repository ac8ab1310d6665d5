#include "tensor/dynamic_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft {
namespace {

constexpr int kDropped = 18;  // bits of a float below those that Nearest looks up by

// Ascends as x does.
uint32_t Key(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return ((bits >> 31) != 0 ? ~bits : bits | 0x80000000u) >> kDropped;
}
// The least float of a key.
float LeastOf(uint32_t key) {
    const uint32_t bits = key << kDropped;
    return std::bit_cast<float>((bits >> 31) != 0 ? bits & 0x7fffffffu : ~bits);
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
    for (size_t i = 0; i < middles_.size(); ++i) {
        middles_[i] = static_cast<float>((double{values_[i]} + double{values_[i + 1]}) / 2);
    }
    first_.resize(size_t{1} << (32 - kDropped));
    for (uint32_t key = 0; key < first_.size(); ++key) {
        const float least = LeastOf(key);  // of keys of no numbers: any
        const auto above =
            std::ranges::partition_point(middles_, [&](float middle) { return middle <= least; });
        first_[key] = static_cast<uint8_t>(above - middles_.begin());
    }
}

uint8_t DynamicCodes::Nearest(float x) const {
    size_t code = first_[Key(x)];
    while (code < middles_.size() && middles_[code] <= x) ++code;
    return static_cast<uint8_t>(code);
}

void Widen(const DynamicCodes& codes, std::span<const uint8_t> from, float scale,
           std::span<float> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = codes.value(from[i]) * scale;
}

float Narrow(const DynamicCodes& codes, std::span<const float> from, std::span<uint8_t> to) {
    float scale = 0;
    for (const float x : from) scale = std::max(scale, std::abs(x));
    for (size_t i = 0; i < from.size(); ++i) {
        to[i] = codes.Nearest(scale > 0 ? from[i] / scale : 0.0f);
    }
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
