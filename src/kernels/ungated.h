// Element-wise activations of one operand (tensor/ungated.h).
#pragma once

#include "kernels/args.h"
#include "tensor/ungated.h"

namespace weft::kernels {

// y = act(x), [rows, cols]. Parts divide the elements; y may be x.
struct ActivateArgs {
    const float* x = nullptr;
    float* y = nullptr;
    int64_t rows = 0, cols = 0;
    Ungated kind = Ungated::kReluSquared;
    Xielu xielu{};
};
void Activate(const ActivateArgs& args, int part, int parts);

// dx = dy * act'(x), [rows, cols]. Parts divide the elements; dx may be dy or x.
struct ActivateGradArgs {
    const float *dy = nullptr, *x = nullptr;
    float* dx = nullptr;
    int64_t rows = 0, cols = 0;
    Ungated kind = Ungated::kReluSquared;
    Xielu xielu{};
};
void ActivateGrad(const ActivateGradArgs& args, int part, int parts);

}  // namespace weft::kernels
