#include "kernels/amx/dense.h"
#include "kernels/amx/micro.h"
#include "kernels/avx512/dense.h"

namespace weft::kernels::amx {
namespace {

struct FloatGemm {
    static int64_t ScratchBytes(const dense::GemmArgs& args) {
        return avx512::kGemm.gemm_scratch_bytes(args);
    }
    static void Run(const dense::GemmArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        avx512::kGemm.gemm(args, scratch, part, parts);
    }
};

}  // namespace

const dense::GemmKernels kGemm =
    dense::GemmByCompute<FloatGemm, dense::BlockedGemm<Micro>>::kKernels;

}  // namespace weft::kernels::amx
