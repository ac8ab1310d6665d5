#include "kernels/amx/gemm.h"

#include "kernels/amx/micro.h"
#include "kernels/avx512/gemm.h"

namespace weft::kernels::amx {

int64_t GemmScratchBytes(const dense::GemmArgs& args) {
    switch (args.compute) {
        case dense::Compute::kF32: return avx512::GemmScratchBytes(args);
        case dense::Compute::kBf16: return dense::BlockedScratchBytes<Micro>();
    }
    return 0;
}

void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts) {
    switch (args.compute) {
        case dense::Compute::kF32: return avx512::Gemm(args, scratch, part, parts);
        case dense::Compute::kBf16: return dense::BlockedGemm<Micro>(args, scratch, part, parts);
    }
}

}  // namespace weft::kernels::amx
