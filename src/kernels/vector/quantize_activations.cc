#include <algorithm>
#include <bit>

#include "kernels/vector/set.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::WEFT_SET {
namespace {

using weight_tiles::ActivationBlock;

// The sum, and `factor` times the sum in the form in which products start at it. Sums are ByteSums
// if products have two 16-bit sums per lane.
[[maybe_unused]] int All(int sum) {
    return sum;
}
[[maybe_unused]] int32_t From(int sum, int factor) {
    return factor * sum;
}
template <typename ByteSums>
int All(const ByteSums& sums) {
    return sums.low + sums.high;
}
template <typename ByteSums>
int32_t From(const ByteSums& sums, int factor) {
    return (factor * sums.high << 16) + (factor * sums.low & 0xffff);
}

// The largest absolute value, or NaN if there is one: without the sign, floats are in the order of
// their bits, and NaN is above infinity.
float PeakOf(const float* x) {
    uint32_t peak = 0;
    for (int i = 0; i < 32; ++i) {
        peak = std::max(peak, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
    }
    return std::bit_cast<float>(peak);
}

// After NaN or infinity, the scale is not finite, so no product with the block is finite.
void PrepareBlock(const float* x, ActivationBlock* out) {
    constexpr float kLeastPeak = 4e-37f;  // below, 127 / peak may be infinite
    const float peak = PeakOf(x);
    const float scale = peak / 127, inverse = peak > kLeastPeak ? 127 / peak : 0;
    const auto low = Simd::StoreI8(x, inverse, out->q);
    const auto high = Simd::StoreI8(x + 16, inverse, out->q + 16);
    const auto both = low + high;
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(All(both));
    out->from_8 = From(both, -8);
    out->from_128 = -128 * All(both);
    out->from_32[0] = From(low, -32);
    out->from_32[1] = From(high, -32);
    out->scaled_half[0] = scale * static_cast<float>(All(low));
    out->scaled_half[1] = scale * static_cast<float>(All(high));
}

// `count` (1 to 32) columns.
template <typename S>
void PrepareBF16(const float* x, int64_t count, std::byte* out) {
    const Float a = S::LoadUpTo(x, count), b = S::LoadUpTo(x + S::kLanes, count - S::kLanes);
    if constexpr (S::kDots) S::Store(reinterpret_cast<float*>(out), S::Pairs(a, b));
}

}  // namespace

void QuantizeActivations(const QuantizeActivationsArgs& args, int part, int parts) {
    const int64_t blocks = (args.cols + 31) / 32;
    const Range share = Share(args.rows * blocks, 1, part, parts);
    for (int64_t i = share.begin; i < share.end;) {
        const int64_t row = i / blocks;
        const int64_t end = std::min(share.end, (row + 1) * blocks);
        const float* x = args.x + row * args.x_stride;
        auto* out = reinterpret_cast<ActivationBlock*>(args.out) +
                    row * weight_tiles::QuantizedBlocks(args.cols);
        for (; i < end; ++i) {
            const int64_t block = i - row * blocks, k = block * 32;
            if (args.as == ActivationFormat::kInt8) {
                PrepareBlock(x + k, out + block);
            } else {
                PrepareBF16<Simd>(x + k, std::min<int64_t>(32, args.cols - k),
                                  reinterpret_cast<std::byte*>(out + block));
            }
        }
    }
}

}  // namespace weft::kernels::WEFT_SET
