#include "kernels/reference/gemm.h"

#include <bit>
#include <cmath>

#include "kernels/kernels.h"

namespace weft::kernels::reference {
namespace {

float FromBf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// To nearest, ties to even.
float RoundedToBf16(float x) {
    if (std::isnan(x)) return x;
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return FromBf16(static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
}

// An operand's element as the product takes it.
float Element(const float* floats, const uint16_t* halves, int64_t at, dense::Compute compute) {
    if (halves != nullptr) return FromBf16(halves[at]);
    return compute == dense::Compute::kBf16 ? RoundedToBf16(floats[at]) : floats[at];
}

}  // namespace

int64_t GemmScratchBytes(const dense::GemmArgs& /*args*/) {
    return 0;
}

void Gemm(const dense::GemmArgs& args, std::span<std::byte> /*scratch*/, int part, int parts) {
    const Range rows = Share(args.m, 1, part, parts);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
            float sum = 0;
            for (int64_t d = 0; d < args.k; ++d) {
                sum += Element(args.a, args.a_bf16, i * args.a_row + d * args.a_col, args.compute) *
                       Element(args.b, args.b_bf16, d * args.b_row + j * args.b_col, args.compute);
            }
            float& c = args.c[i * args.c_stride + j];
            c = args.accumulate ? c + sum : sum;
        }
    }
}

}  // namespace weft::kernels::reference
