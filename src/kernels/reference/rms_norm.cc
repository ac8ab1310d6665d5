#include <cmath>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {

void RmsNorm(const RmsNormArgs& args, int part, int parts) {
    const int64_t groups = args.cols / args.group;
    const Range share = Share(args.rows * groups, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / groups;
        const int64_t column = unit % groups * args.group;
        const float* x = args.x + row * args.x_stride + column;
        float* y = args.y + row * args.y_stride + column;
        float squares = 0;
        for (int64_t i = 0; i < args.group; ++i) squares += x[i] * x[i];
        const float mean = squares / static_cast<float>(args.group);
        const float scale = 1.0f / std::sqrt(mean + args.eps);
        for (int64_t i = 0; i < args.group; ++i) y[i] = x[i] * scale * args.weight[i];
    }
}

}  // namespace weft::kernels::reference
