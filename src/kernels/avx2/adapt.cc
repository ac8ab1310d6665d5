#include "kernels/adapt_tiles.h"
#include "kernels/avx2/simd.h"

namespace weft::kernels::avx2 {
namespace {

struct Wide {
    using Half = float __attribute__((vector_size(16)));
    using Double = double __attribute__((vector_size(32)));
};
using Tiles = AdaptTiles<Simd, Wide>;

}  // namespace

const AdaptKernels kAdapt{Tiles::Down, Tiles::Up};

}  // namespace weft::kernels::avx2
