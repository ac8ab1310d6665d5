#include "kernels/amx/micro.h"
#include "kernels/amx/table.h"

namespace weft::kernels::amx {
namespace {

struct FloatGemm {
    static int64_t ScratchBytes(const dense::GemmArgs& args) {
        return KernelsFor(CpuLevel::kAvx512).gemm_scratch_bytes(args);
    }
    static void Run(const dense::GemmArgs& args, std::span<std::byte> scratch, int part,
                    int parts) {
        KernelsFor(CpuLevel::kAvx512).gemm(args, scratch, part, parts);
    }
};

}  // namespace

void SetGemm(Kernels& table) {
    avx512::GemmByCompute<FloatGemm, avx512::BlockedGemm<Micro>>::Set(table);
}

}  // namespace weft::kernels::amx
