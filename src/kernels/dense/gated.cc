#include "kernels/dense/gated.h"

#include <algorithm>
#include <cmath>

#include "kernels/dense/row_copy.h"

namespace weft::kernels::dense {
namespace {

struct UnitGrad {
    float dgate = 0, dup = 0;
};

float Sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

// gpt-oss's unit, which tensor/activation.h describes.
UnitGrad ClampedGrad(float dout, float gate, float up) {
    const float a = std::min(gate, 7.0f), b = std::clamp(up, -7.0f, 7.0f);
    const float open = Sigmoid(1.702f * a);
    UnitGrad grad;
    if (gate <= 7.0f) grad.dgate = dout * (b + 1) * open * (1 + 1.702f * a * (1 - open));
    if (up >= -7.0f && up <= 7.0f) grad.dup = dout * a * open;
    return grad;
}

UnitGrad LimitedGrad(const LimitedGluGradArgs& args, float dout, float gate, float up) {
    const float most = args.limit;
    const float a = args.limits_gate ? std::min(gate, most) : gate;
    const float b = std::clamp(up, -most, most), open = Sigmoid(a), act = a * open;
    UnitGrad grad;
    const bool gate_passes = act <= most && (!args.limits_gate || gate <= most);
    if (gate_passes) grad.dgate = dout * b * open * (1 + a * (1 - open));
    if (up >= -most && up <= most) grad.dup = dout * std::min(act, most);
    return grad;
}

}  // namespace

int64_t LimitedGluGradScratchBytes(const LimitedGluGradArgs& args) {
    return 3 * FloatScratchBytes(args.glu.cols);
}

void LimitedGluGrad(const Kernels& kernels, const LimitedGluGradArgs& args, int part, int parts) {
    const GluGradArgs& glu = args.glu;
    const int64_t cols = glu.cols;
    float* const dout = ScratchFloats(args, part);
    float* const gate = dout + FloatScratchBytes(cols) / 4;
    float* const up = gate + FloatScratchBytes(cols) / 4;
    const bool clamped = glu.activation == Activation::kClampedSilu;
    const Range share = Share(glu.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        CopyRow(kernels, glu.dout, row, {dout, cols}, 0, cols);
        CopyRow(kernels, glu.gate, row, {gate, cols}, 0, cols);
        CopyRow(kernels, glu.up, row, {up, cols}, 0, cols);
        for (int64_t i = 0; i < cols; ++i) {
            const UnitGrad grad = clamped ? ClampedGrad(dout[i], gate[i], up[i])
                                          : LimitedGrad(args, dout[i], gate[i], up[i]);
            gate[i] = grad.dgate;
            up[i] = grad.dup;
        }
        CopyRow(kernels, {gate, cols}, 0, glu.dgate, row, cols);
        CopyRow(kernels, {up, cols}, 0, glu.dup, row, cols);
    }
}

}  // namespace weft::kernels::dense
