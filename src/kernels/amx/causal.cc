#include "kernels/amx/micro.h"
#include "kernels/amx/table.h"
#include "kernels/vector/flash.h"

namespace weft::kernels::amx {
namespace {

struct FloatCausal {
    static int64_t ScratchBytes(const dense::CausalArgs& args) {
        return KernelsFor(CpuLevel::kAvx512).causal_scratch_bytes(args);
    }
    static int64_t ScratchBytes(const dense::CausalGradArgs& args) {
        return KernelsFor(CpuLevel::kAvx512).causal_grad_scratch_bytes(args);
    }
    static void Run(const dense::CausalArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        KernelsFor(CpuLevel::kAvx512).causal(args, scratch, part, parts);
    }
    static void Run(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        KernelsFor(CpuLevel::kAvx512).causal_grad(args, scratch, part, parts);
    }
};

}  // namespace

void SetCausal(Kernels& table) {
    avx512::CausalByCompute<FloatCausal, avx512::Flash<Micro>>::Set(table);
}

}  // namespace weft::kernels::amx
