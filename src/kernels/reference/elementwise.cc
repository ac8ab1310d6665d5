#include <algorithm>
#include <cmath>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {

float Gated(Activation activation, float gate, float up) {
    switch (activation) {
        case Activation::kSilu: return gate / (1.0f + std::exp(-gate)) * up;
        case Activation::kGeluTanh: {
            const float u = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
            return gate / (1.0f + std::exp(-2.0f * u)) * up;
        }
        case Activation::kClampedSilu: {
            const float a = std::min(gate, 7.0f);
            const float b = std::clamp(up, -7.0f, 7.0f);
            return a / (1.0f + std::exp(-1.702f * a)) * (b + 1.0f);
        }
    }
    return 0;
}

void Glu(const GluArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / args.cols;
        const int64_t column = unit % args.cols;
        const float gate = args.gate[row * args.gate_stride + column];
        const float up = args.up[row * args.up_stride + column];
        args.out[row * args.out_stride + column] = Gated(args.activation, gate, up);
    }
}

void Add(const AddArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.out[i] = args.a[i] + args.b[i];
}

void AddBias(const AddBiasArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        args.y[i] = args.x[i] + args.bias[i % args.cols];
    }
}

void Scale(const ScaleArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.y[i] = args.factor * args.x[i];
}

void SoftCap(const SoftCapArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        args.y[i] = args.cap * std::tanh(args.x[i] / args.cap);
    }
}

}  // namespace weft::kernels::reference
