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
        float mean = 0;
        if (args.squares != nullptr) {
            mean = args.squares[row * args.squares_stride] / static_cast<float>(args.whole);
        } else {
            for (int64_t i = 0; i < args.group; ++i) mean += x[i] * x[i];
            mean /= static_cast<float>(args.group);
        }
        const float scale = 1.0f / std::sqrt(mean + args.eps);
        for (int64_t i = 0; i < args.group; ++i) {
            y[i] = x[i] * scale * (args.weight == nullptr ? 1.0f : args.weight[i]);
        }
    }
}

// One definition for all instruction sets. Double hides where the columns are cut over ranks; eight
// sums side by side let the compiler use vectors.
void SumSquares(const SumSquaresArgs& args, int part, int parts) {
    constexpr int kLanes = 8;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* x = args.x + row * args.x_stride;
        double sums[kLanes] = {};
        int64_t i = 0;
        for (; i + kLanes <= args.cols; i += kLanes) {
            for (int lane = 0; lane < kLanes; ++lane) {
                const double value = x[i + lane];
                sums[lane] += value * value;
            }
        }
        for (; i < args.cols; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
        double sum = 0;
        for (double lane : sums) sum += lane;
        if (args.wide != nullptr) args.wide[row * args.y_stride] = sum;
        if (args.y != nullptr) args.y[row * args.y_stride] = static_cast<float>(sum);
    }
}

}  // namespace weft::kernels::reference
