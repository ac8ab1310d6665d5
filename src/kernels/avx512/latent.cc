#include "kernels/avx512/simd.h"
#include "kernels/latent_attention.h"

namespace weft::kernels::avx512 {

void LatentAttention(const LatentAttentionArgs& args, int part, int parts) {
    LatentTiles<Simd>(args, part).Run(part, parts);
}

}  // namespace weft::kernels::avx512
