#include "kernels/reference/rows.h"

#include <bit>
#include <cmath>

namespace weft::kernels::reference {

// The gradient of the weight computes `inverse` again: it is written for who reads it.
void NormGradInput(const dense::NormGradArgs& args, int part, int parts) {
    const RmsNormGradArgs& a = args.args;
    RmsNormGradInput(a, part, parts);
    const Range rows = Share(args.inverse == nullptr ? 0 : a.rows, 1, part, parts);
    const int64_t groups = a.cols / a.group;
    for (int64_t unit = rows.begin * groups; unit < rows.end * groups; ++unit) {
        const float* x = a.x + unit / groups * a.x_stride + unit % groups * a.group;
        float squares = 0;
        for (int64_t i = 0; i < a.group; ++i) squares += x[i] * x[i];
        args.inverse[unit] = 1.0f / std::sqrt(squares / static_cast<float>(a.group) + a.eps);
    }
}

void NormGradWeight(const dense::NormGradArgs& args, int part, int parts) {
    RmsNormGradWeight(args.args, part, parts);
}

void Loss(const dense::LossArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* logits = args.logits + row * args.logits_stride;
        const CrossEntropyArgs one{logits, args.logits_stride, args.targets + row, 1, args.cols};
        args.losses[row] = CrossEntropy(one);
        const int32_t target = args.targets[row];
        float largest = logits[0], sum = 0;
        for (int64_t i = 1; i < args.cols; ++i) largest = std::max(largest, logits[i]);
        for (int64_t i = 0; i < args.cols; ++i) sum += std::exp(logits[i] - largest);
        for (int64_t i = 0; i < args.cols; ++i) {
            const float p = std::exp(logits[i] - largest) / sum;
            logits[i] = target < 0 ? 0 : args.dloss * (i == target ? p - 1 : p);
        }
    }
}

void AdamW(const dense::AdamWArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const float g = args.grad_scale * args.g[i];
        args.m[i] = args.beta1 * args.m[i] + (1 - args.beta1) * g;
        args.v[i] = args.beta2 * args.v[i] + (1 - args.beta2) * g * g;
        const float m = args.m[i] / args.correction1, v = args.v[i] / args.correction2;
        args.p[i] -= args.rate * (args.decay * args.p[i] + m / (std::sqrt(v) + args.eps));
        if (args.p_bf16 == nullptr) continue;
        const uint32_t bits = std::bit_cast<uint32_t>(args.p[i]);
        const bool nan = std::isnan(args.p[i]);
        const uint32_t rounded = nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
        args.p_bf16[i] = static_cast<uint16_t>(rounded >> 16);
    }
}

}  // namespace weft::kernels::reference
