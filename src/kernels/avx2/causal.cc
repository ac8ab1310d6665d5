#include "kernels/avx2/causal.h"

#include "kernels/avx2/micro.h"
#include "kernels/dense/flash.h"

namespace weft::kernels::avx2 {
namespace {

using Floats = dense::Flash<Micro<FloatUnits>, Simd>;
using Halves = dense::Flash<Micro<RoundedUnits>, Simd>;

}  // namespace

int64_t CausalScratchBytes(const dense::CausalArgs& args) {
    return args.compute == dense::Compute::kF32 ? Floats::ScratchBytes(args)
                                                : Halves::ScratchBytes(args);
}

int64_t CausalGradScratchBytes(const dense::CausalGradArgs& args) {
    return args.compute == dense::Compute::kF32 ? Floats::ScratchBytes(args)
                                                : Halves::ScratchBytes(args);
}

void Causal(const dense::CausalArgs& args, std::span<std::byte> scratch, int part, int parts) {
    args.compute == dense::Compute::kF32 ? Floats::Run(args, scratch, part, parts)
                                         : Halves::Run(args, scratch, part, parts);
}

void CausalGrad(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                int parts) {
    args.compute == dense::Compute::kF32 ? Floats::Run(args, scratch, part, parts)
                                         : Halves::Run(args, scratch, part, parts);
}

}  // namespace weft::kernels::avx2
