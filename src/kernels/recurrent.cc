#include "kernels/recurrent.h"

#include <cmath>

#include "cpu_levels.h"

namespace weft::kernels {

// Each set has one function that makes its kernels (vector/recurrent.cc).
namespace reference {
RecurrentKernels Recurrent();
}
namespace avx2 {
RecurrentKernels Recurrent();
}
namespace avx512 {
RecurrentKernels Recurrent();
}
namespace neon {
RecurrentKernels Recurrent();
}
namespace i8mm {
RecurrentKernels Recurrent();
}

// As KernelsFor: made at the first use, on a processor that has the set.
const RecurrentKernels& RecurrentKernelsFor(CpuLevel level) {
#if WEFT_HAS_AVX2
    if (level == CpuLevel::kAvx2 || level == CpuLevel::kAvxVnni) {
        static const RecurrentKernels own = avx2::Recurrent();
        return own;
    }
#endif
#if WEFT_HAS_AVX512
    if (level == CpuLevel::kAvx512 || level == CpuLevel::kAmx) {
        static const RecurrentKernels own = avx512::Recurrent();
        return own;
    }
#endif
#if WEFT_HAS_NEON
    if (level == CpuLevel::kNeon) {
        static const RecurrentKernels own = neon::Recurrent();
        return own;
    }
#endif
#if WEFT_HAS_I8MM
    if (level == CpuLevel::kI8mm) {
        static const RecurrentKernels own = i8mm::Recurrent();
        return own;
    }
#endif
    static const RecurrentKernels own = reference::Recurrent();
    return own;
}

// Space for a block of the state, and for a row's query, key, faded key and fades.
int64_t DeltaScratch(int64_t key_dim) {
    const int64_t padded = (key_dim + 15) / 16 * 16;
    return padded * kStateColumns + 4 * padded;
}

void DeltaGates(const DeltaGatesArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t head = unit % args.heads;
        if (args.beta != nullptr) args.strength[unit] = 1.0f / (1.0f + std::exp(-args.beta[unit]));
        for (int64_t i = 0; i < args.each; ++i) {
            const float x = args.decay[unit * args.each + i] + args.dt[head * args.each + i];
            float& fade = args.fade[unit * args.each + i];
            if (args.floor != 0) {
                fade = std::exp(args.floor / (1.0f + std::exp(-args.a[head] * x)));
                continue;
            }
            // Above 20, softplus(x) rounds to x.
            const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
            fade = std::exp(args.a[head] * softplus);
            if (args.beta == nullptr) args.strength[unit] = softplus;
        }
    }
}

}  // namespace weft::kernels
