#include "kernels/avx2/ops.h"
#include "kernels/avx2/simd.h"
#include "kernels/tiled_attention.h"

namespace weft::kernels::avx2 {

void Attention(const AttentionArgs& args, int part, int parts) {
    AttentionTiles<Simd>(args, part, parts);
}

int64_t AttentionScratch(int64_t head_dim, int64_t /*group*/) {
    return AttentionScratchFloats(head_dim);
}

}  // namespace weft::kernels::avx2
