// The numbers of 8-bit optimizer states: block-wise dynamic quantization (Dettmers et al. 2022), a
// byte an element and a float32 scale a block.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Elements that share a scale.
inline constexpr int64_t kStateBlock = 256;

// For m, which has both signs, and for v.
class DynamicCodes;
const DynamicCodes& SignedCodes();
const DynamicCodes& UnsignedCodes();

// 256 values between -1 (or 0) and 1. After e zero bits the rest of a code is a fraction of 10^-e:
// each decade has the midpoints of 2^(bits left) even steps of it, from 0.1 on. Beside them there
// are 0 and 1, and of signed codes -1 in the place of the negative value nearest to 0: so the
// largest of a block is always exact, and numbers that were narrowed once stay as they are.
class DynamicCodes {
  public:
    explicit DynamicCodes(bool is_signed);
    float value(uint8_t code) const { return values_[code]; }
    // The nearest; of two the greater one. x: -1 to 1; code 0 for NaN.
    uint8_t Nearest(float x) const;

  private:
    std::array<float, 256> values_{};
    std::array<float, 256> middles_{};  // of each code and the next; infinite after the last
    std::vector<uint8_t> first_;        // by the bucket of x: the nearest code or the one before
};

// One block of at most kStateBlock values. scale: of a block, the largest magnitude.
void Widen(const DynamicCodes& codes, std::span<const uint8_t> from, float scale,
           std::span<float> to);
float Narrow(const DynamicCodes& codes, std::span<const float> from, std::span<uint8_t> to);

}  // namespace weft
