#include "kernels/reference/elements.h"

namespace weft::kernels::reference {
namespace {

int64_t GemmScratch(const dense::GemmArgs& /*args*/) {
    return 0;
}

// An operand's element, rounded as the product requires.
float ElementOf(const dense::GemmOperand& from, int64_t i, int64_t j, dense::Compute compute) {
    const float x = Get({from.data, 0, from.type}, 0, i * from.row + j * from.col);
    return compute == dense::Compute::kBf16 ? BF16ToF32(F32ToBF16(x)) : x;
}

void Gemm(const dense::GemmArgs& args, std::span<std::byte> /*scratch*/, int part, int parts) {
    const Range rows = Share(args.m, 1, part, parts);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
            float sum = 0;
            for (int64_t d = 0; d < args.k; ++d) {
                const float a = ElementOf(args.a, i, d, args.compute);
                sum += a * ElementOf(args.b, d, j, args.compute);
            }
            Put(args.c, i, j, args.accumulate ? Get(args.c, i, j) + sum : sum);
        }
    }
}

}  // namespace

const dense::GemmKernels kGemm = {GemmScratch, Gemm};

}  // namespace weft::kernels::reference
