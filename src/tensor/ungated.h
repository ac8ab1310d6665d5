// Activations of MLPs without a gate. Programs and kernels use these definitions.
#pragma once

namespace weft {

enum class Ungated {
    kReluSquared,  // max(a, 0)^2 (So et al. 2021)
    kGeluTanh,     // as Activation::kGeluTanh, without `up`
    kXielu,        // Xielu
};
// xIELU (Huang and Schlag 2025): above * a^2 + beta * a for a > 0, and below * (expm1(min(a, eps))
// - a) + beta * a for other a.
struct Xielu {
    float above = 0, below = 0, beta = 0, eps = 0;
};

inline const char* UngatedName(Ungated kind) {
    switch (kind) {
        case Ungated::kReluSquared: return "relu_squared";
        case Ungated::kGeluTanh: return "gelu_tanh";
        case Ungated::kXielu: return "xielu";
    }
    return "";
}

}  // namespace weft
