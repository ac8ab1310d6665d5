// 8-bit codes of optimizer states: block-wise dynamic quantization (Dettmers et al. 2022), one byte
// per element and one float32 scale per block.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Number of elements that share a scale.
inline constexpr int64_t kStateBlock = 256;

// SignedCodes for the first moment m, UnsignedCodes for the second moment v.
class DynamicCodes;
const DynamicCodes& SignedCodes();
const DynamicCodes& UnsignedCodes();

// A table of 256 values between -1 (or 0) and 1. The zero bits at a code's start choose the decade:
// after e zero bits, the value is 10^-e times a fraction from 0.1 to 1. The remaining bits choose
// the fraction: the midpoint of one of 2^(number of remaining bits) equal steps. The values 0 and 1
// are added, and in the signed table -1 replaces the negative value nearest to 0. The largest
// element of a block is therefore exact, and narrowing is idempotent.
class DynamicCodes {
  public:
    explicit DynamicCodes(bool is_signed);
    float value(uint8_t code) const { return values_[code]; }
    // The nearest code; of two equally near, the greater. x: -1 to 1. NaN gives code 0.
    uint8_t Nearest(float x) const;

  private:
    std::array<float, 256> values_{};
    std::array<float, 256> middles_{};  // midpoints between each value and the next; infinite after
                                        // the last
    std::vector<uint8_t> first_;        // by the bucket of x: the nearest code or the one before it
};

// Decode and encode one block of at most kStateBlock values. scale: the block's largest magnitude.
void Widen(const DynamicCodes& codes, std::span<const uint8_t> from, float scale,
           std::span<float> to);
float Narrow(const DynamicCodes& codes, std::span<const float> from, std::span<uint8_t> to);

}  // namespace weft
