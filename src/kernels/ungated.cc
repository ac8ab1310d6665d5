#include "kernels/ungated.h"

#include <algorithm>
#include <cmath>

namespace weft::kernels {
namespace {

// (NaN stays NaN.)
float Relu(float x) {
    return x <= 0 ? 0.0f : x;
}

float ReluSquared(float x) {
    return Relu(x) * Relu(x);
}

float GeluTanh(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x / (1.0f + std::exp(-2.0f * u));
}

float Gelu(float x) {
    return 0.5f * x * std::erfc(-0.70710678f * x);
}

float XieluOf(const Xielu& a, float x) {
    const float bent = x > 0 ? a.above * x * x : a.below * (std::expm1(std::min(x, a.eps)) - x);
    return bent + a.beta * x;
}

float ReluSquaredSlope(float x) {
    return x > 0 ? 2 * x : 0.0f;
}

float GeluTanhSlope(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    const float open = 1.0f / (1.0f + std::exp(-2.0f * u));
    const float slope = 0.7978845608f * (1.0f + 3 * 0.044715f * x * x);
    return open + 2 * x * open * (1 - open) * slope;
}

float GeluSlope(float x) {
    return 0.5f * std::erfc(-0.70710678f * x) + x * 0.39894228f * std::exp(-0.5f * x * x);
}

float SiluSlope(float x) {
    const float open = 1.0f / (1.0f + std::exp(-x));
    return open * (1 + x * (1 - open));
}

float XieluSlope(const Xielu& a, float x) {
    if (x > 0) return 2 * a.above * x + a.beta;
    return a.below * ((x < a.eps ? std::exp(x) : 0.0f) - 1) + a.beta;
}

template <typename Of>
void Each(const ActivateArgs& args, int part, int parts, const Of& of) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.y[i] = of(args.x[i]);
}

template <typename Of>
void EachSlope(const ActivateGradArgs& args, int part, int parts, const Of& of) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.dx[i] = args.dy[i] * of(args.x[i]);
}

}  // namespace

void Activate(const ActivateArgs& args, int part, int parts) {
    switch (args.kind) {
        case Ungated::kReluSquared: return Each(args, part, parts, ReluSquared);
        case Ungated::kGeluTanh: return Each(args, part, parts, GeluTanh);
        case Ungated::kXielu:
            return Each(args, part, parts, [&](float x) { return XieluOf(args.xielu, x); });
        case Ungated::kRelu: return Each(args, part, parts, Relu);
        case Ungated::kGelu: return Each(args, part, parts, Gelu);
        case Ungated::kSilu:
            return Each(args, part, parts, [](float x) { return x / (1.0f + std::exp(-x)); });
        case Ungated::kClamp: {
            const float most = args.xielu.above;
            return Each(args, part, parts, [&](float x) { return std::clamp(x, -most, most); });
        }
    }
}

void ActivateGrad(const ActivateGradArgs& args, int part, int parts) {
    switch (args.kind) {
        case Ungated::kReluSquared: return EachSlope(args, part, parts, ReluSquaredSlope);
        case Ungated::kGeluTanh: return EachSlope(args, part, parts, GeluTanhSlope);
        case Ungated::kXielu:
            return EachSlope(args, part, parts, [&](float x) { return XieluSlope(args.xielu, x); });
        case Ungated::kRelu:
            return EachSlope(args, part, parts, [](float x) { return x > 0 ? 1.0f : 0.0f; });
        case Ungated::kGelu: return EachSlope(args, part, parts, GeluSlope);
        case Ungated::kSilu: return EachSlope(args, part, parts, SiluSlope);
        case Ungated::kClamp: {
            const float most = args.xielu.above;
            return EachSlope(args, part, parts,
                             [&](float x) { return std::abs(x) <= most ? 1.0f : 0.0f; });
        }
    }
}

}  // namespace weft::kernels
