// What an optimizer keeps from one update to the next. The update itself is kernels/dense/rows.h's.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

// AdamW (Loshchilov and Hutter 2019).
struct AdamOptions {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    double weight_decay = 0.01;  // of matrices; vectors (norm weights, biases) are not decayed
};

// Of this rank's share of the weights.
struct AdamState {
    std::vector<float> m, v;
    int64_t steps = 0;
};

}  // namespace weft::train
