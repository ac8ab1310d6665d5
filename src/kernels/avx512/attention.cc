#include "kernels/avx512/ops.h"
#include "kernels/avx512/simd.h"
#include "kernels/tiled_attention.h"

namespace weft::kernels::avx512 {

void Attention(const AttentionArgs& args, int part, int parts) {
    AttentionTiles<Simd>(args, part, parts);
}

int64_t AttentionScratch(int64_t head_dim, int64_t /*group*/) {
    return AttentionScratchFloats(head_dim);
}

}  // namespace weft::kernels::avx512
