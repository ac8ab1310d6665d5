#include "kernels/relu.h"

namespace weft::kernels {

void ReluSquared(const ReluSquaredArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const float x = args.x[i] > 0 ? args.x[i] : 0.0f;
        args.y[i] = x * x;
    }
}

}  // namespace weft::kernels
