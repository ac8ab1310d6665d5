// A number of gradient descent with momentum that all devices compute alike.
#pragma once

namespace weft {

// The share of the gradient that is added to the momentum, which is first multiplied by
// float(momentum). If both are shares of one average (dampening == momentum), they add up to 1
// exactly: a moving average of constant numbers is that number. (1 - 0.9999, rounded, and
// float(0.9999) add up to 1 - 1.7e-8, which makes the average 1.7e-4 smaller.)
inline float SgdTaken(double momentum, double dampening) {
    return dampening == momentum ? 1 - static_cast<float>(momentum)
                                 : static_cast<float>(1 - dampening);
}

}  // namespace weft
