#include "kernels/amx/dense.h"
#include "kernels/amx/micro.h"
#include "kernels/avx512/dense.h"
#include "kernels/dense/flash.h"

namespace weft::kernels::amx {
namespace {

struct FloatCausal {
    static int64_t ScratchBytes(const dense::CausalArgs& args) {
        return avx512::kCausal.causal_scratch_bytes(args);
    }
    static int64_t ScratchBytes(const dense::CausalGradArgs& args) {
        return avx512::kCausal.causal_grad_scratch_bytes(args);
    }
    static void Run(const dense::CausalArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        avx512::kCausal.causal(args, scratch, part, parts);
    }
    static void Run(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        avx512::kCausal.causal_grad(args, scratch, part, parts);
    }
};

}  // namespace

const dense::CausalKernels kCausal =
    dense::CausalByCompute<FloatCausal, dense::Flash<Micro, avx512::Lanes>>::kKernels;

}  // namespace weft::kernels::amx
