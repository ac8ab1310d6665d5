#include "kernels/amx/causal.h"

#include "kernels/amx/micro.h"
#include "kernels/avx512/causal.h"
#include "kernels/dense/flash.h"

namespace weft::kernels::amx {
namespace {

using Halves = dense::Flash<Micro, avx512::Simd>;

}  // namespace

int64_t CausalScratchBytes(const dense::CausalArgs& args) {
    return args.compute == dense::Compute::kF32 ? avx512::CausalScratchBytes(args)
                                                : Halves::ScratchBytes(args);
}

int64_t CausalGradScratchBytes(const dense::CausalGradArgs& args) {
    return args.compute == dense::Compute::kF32 ? avx512::CausalGradScratchBytes(args)
                                                : Halves::ScratchBytes(args);
}

void Causal(const dense::CausalArgs& args, std::span<std::byte> scratch, int part, int parts) {
    args.compute == dense::Compute::kF32 ? avx512::Causal(args, scratch, part, parts)
                                         : Halves::Run(args, scratch, part, parts);
}

void CausalGrad(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                int parts) {
    args.compute == dense::Compute::kF32 ? avx512::CausalGrad(args, scratch, part, parts)
                                         : Halves::Run(args, scratch, part, parts);
}

}  // namespace weft::kernels::amx
