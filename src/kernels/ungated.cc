#include "kernels/ungated.h"

#include <algorithm>
#include <cmath>

namespace weft::kernels {
namespace {

float ReluSquared(float x) {
    const float open = x > 0 ? x : 0.0f;
    return open * open;
}

float GeluTanh(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x / (1.0f + std::exp(-2.0f * u));
}

float XieluOf(const Xielu& a, float x) {
    const float bent = x > 0 ? a.above * x * x : a.below * (std::expm1(std::min(x, a.eps)) - x);
    return bent + a.beta * x;
}

template <typename Of>
void Each(const ActivateArgs& args, int part, int parts, const Of& of) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.y[i] = of(args.x[i]);
}

}  // namespace

void Activate(const ActivateArgs& args, int part, int parts) {
    switch (args.kind) {
        case Ungated::kReluSquared: return Each(args, part, parts, ReluSquared);
        case Ungated::kGeluTanh: return Each(args, part, parts, GeluTanh);
        case Ungated::kXielu:
            return Each(args, part, parts, [&](float x) { return XieluOf(args.xielu, x); });
    }
}

}  // namespace weft::kernels
