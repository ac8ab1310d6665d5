#include "kernels/avx2/gemm.h"

#include "kernels/avx2/micro.h"

namespace weft::kernels::avx2 {

int64_t GemmScratchBytes(const dense::GemmArgs& args) {
    switch (args.compute) {
        case dense::Compute::kF32: return dense::BlockedScratchBytes<Micro<FloatUnits>>();
        case dense::Compute::kBf16: return dense::BlockedScratchBytes<Micro<RoundedUnits>>();
    }
    return 0;
}

void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts) {
    switch (args.compute) {
        case dense::Compute::kF32:
            return dense::BlockedGemm<Micro<FloatUnits>>(args, scratch, part, parts);
        case dense::Compute::kBf16:
            return dense::BlockedGemm<Micro<RoundedUnits>>(args, scratch, part, parts);
    }
}

}  // namespace weft::kernels::avx2
