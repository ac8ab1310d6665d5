// The optimizer: new weights from gradients, element by element, over any part of a rank's weights.
//
// AdamW (Loshchilov and Hutter 2019): with g' = g * gradient_scale and step t from 1 on,
//   m = b1 m + (1 - b1) g'        v = b2 v + (1 - b2) g'^2
//   w = w - lr * decay * w - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
// Vectors (norm weights, biases) are not decayed. All in float32, scalars in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::train {

struct AdamOptions {
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

struct AdamState {
    std::vector<float> m, v;
    int64_t steps = 0;
};

// What of one update is the same for all elements.
struct AdamUpdate {
    float learning_rate = 0, beta1 = 0, beta2 = 0, eps = 0;
    float step_size = 0;        // lr / (1 - b1^t)
    float root_correction = 0;  // 1 / sqrt(1 - b2^t)
    float gradient_scale = 1;
    float weight_decay = 0;
};
AdamUpdate MakeUpdate(const AdamOptions& options, double learning_rate, double gradient_scale,
                      int64_t step);

// Elements [begin, end) of all spans, which are as long as each other.
void Adam(const AdamUpdate& update, std::span<float> weights, std::span<const float> gradients,
          std::span<float> m, std::span<float> v);

}  // namespace weft::train
