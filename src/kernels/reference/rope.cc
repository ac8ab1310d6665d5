#include <cmath>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {

void RopeTable(const RopeTableArgs& args, int part, int parts) {
    const int64_t pairs = args.rotary_dim / 2;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        float* out = args.out + row * args.rotary_dim;
        for (int64_t i = 0; i < pairs; ++i) {
            const double angle = static_cast<double>(args.positions[row]) *
                                 static_cast<double>(args.inverse_frequency[i]);
            const double magnitude = static_cast<double>(args.magnitude);
            out[i] = static_cast<float>(magnitude * std::cos(angle));
            out[pairs + i] = static_cast<float>(magnitude * std::sin(angle));
        }
    }
}

void Rope(const RopeArgs& args, int part, int parts) {
    const int64_t pairs = args.rotary_dim / 2;
    const int64_t step = args.neighbours ? 2 : 1;       // from one pair to the next
    const int64_t apart = args.neighbours ? 1 : pairs;  // from a pair's first to its second
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / args.heads;
        const int64_t head = unit % args.heads;
        const float* x = args.x + row * args.x_stride + head * args.head_dim;
        float* y = args.y + row * args.y_stride + head * args.head_dim;
        const float* table = args.cos_sin + row * args.rotary_dim;
        for (int64_t i = 0; i < pairs; ++i) {
            const float cosine = table[i];
            const float sine = args.sign * table[pairs + i];
            const float first = x[i * step];
            const float second = x[i * step + apart];
            y[i * step] = first * cosine - second * sine;
            y[i * step + apart] = second * cosine + first * sine;
        }
        for (int64_t i = args.rotary_dim; i < args.head_dim; ++i) y[i] = x[i];
    }
}

}  // namespace weft::kernels::reference
