#include <cmath>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {

void SwiGlu(const SwiGluArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / args.cols;
        const int64_t column = unit % args.cols;
        const float gate = args.gate[row * args.gate_stride + column];
        const float up = args.up[row * args.up_stride + column];
        args.out[row * args.out_stride + column] = gate / (1.0f + std::exp(-gate)) * up;
    }
}

void Add(const AddArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.out[i] = args.a[i] + args.b[i];
}

}  // namespace weft::kernels::reference
