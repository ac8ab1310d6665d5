#include <algorithm>

#include "kernels/vector/set.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::WEFT_SET {
namespace {

using weight_tiles::ActivationBlock;

void PrepareBlock(const float* x, ActivationBlock* out) {
    Float peaks = Simd::Abs(Simd::Load(x));
    for (int i = Simd::kLanes; i < 32; i += Simd::kLanes) {
        peaks = Simd::Max(peaks, Simd::Abs(Simd::Load(x + i)));
    }
    const float peak = Simd::Largest(peaks);
    const float scale = peak / 127, inverse = scale > 0 ? 127 / peak : 0;
    const int low = Simd::StoreI8(x, inverse, out->q);
    const int high = Simd::StoreI8(x + 16, inverse, out->q + 16);
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(low + high);
    out->from_8 = -8 * (low + high);
    out->from_128 = -128 * (low + high);
    out->from_32[0] = -32 * low;
    out->from_32[1] = -32 * high;
    out->scaled_half[0] = scale * static_cast<float>(low);
    out->scaled_half[1] = scale * static_cast<float>(high);
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
