// The logistic function and its logarithm, without overflow.
#pragma once

#include <cmath>

namespace weft::train {

inline double Logistic(double x) {
    return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
inline double LogLogistic(double x) {
    return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

}  // namespace weft::train
