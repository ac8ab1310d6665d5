// Element-wise activations without a gate.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

// y = max(x, 0)^2, [rows, cols]. Parts divide the elements; y may be x.
struct ReluSquaredArgs {
    const float* x = nullptr;
    float* y = nullptr;
    int64_t rows = 0, cols = 0;
};
void ReluSquared(const ReluSquaredArgs& args, int part, int parts);

}  // namespace weft::kernels
