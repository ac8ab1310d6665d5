#include "train/optimizer.h"

#include <cmath>

#include "base/check.h"

namespace weft::train {

AdamUpdate MakeUpdate(const AdamOptions& options, double learning_rate, double gradient_scale,
                      int64_t step) {
    const double t = static_cast<double>(step);
    AdamUpdate update;
    update.learning_rate = static_cast<float>(learning_rate);
    update.beta1 = static_cast<float>(options.beta1);
    update.beta2 = static_cast<float>(options.beta2);
    update.eps = static_cast<float>(options.eps);
    update.step_size = static_cast<float>(learning_rate / (1 - std::pow(options.beta1, t)));
    update.root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
    update.gradient_scale = static_cast<float>(gradient_scale);
    update.weight_decay = static_cast<float>(options.weight_decay);
    return update;
}

void Adam(const AdamUpdate& u, std::span<float> weights, std::span<const float> gradients,
          std::span<float> m, std::span<float> v) {
    WEFT_CHECK(gradients.size() == weights.size() && m.size() == weights.size() &&
               v.size() == weights.size());
    const float kept = 1 - u.learning_rate * u.weight_decay;
    for (size_t i = 0; i < weights.size(); ++i) {
        const float g = gradients[i] * u.gradient_scale;
        m[i] = u.beta1 * m[i] + (1 - u.beta1) * g;
        v[i] = u.beta2 * v[i] + (1 - u.beta2) * g * g;
        weights[i] =
            weights[i] * kept - u.step_size * m[i] / (std::sqrt(v[i]) * u.root_correction + u.eps);
    }
}

}  // namespace weft::train
