// Activations of one operand: activations of MLPs without a gate, and clamps. Programs and kernels
// use these definitions.
#pragma once

namespace weft {

enum class Ungated {
    kReluSquared,  // max(a, 0)^2 (So et al. 2021)
    kGeluTanh,     // as Activation::kGeluTanh, without `up`
    kXielu,        // Xielu
    kRelu,         // max(a, 0)
    kGelu,         // a * Phi(a), Phi: the normal distribution (Hendrycks and Gimpel 2016)
    kSilu,         // a / (1 + exp(-a))
    kClamp,        // a within +- Xielu::above
};
inline constexpr Ungated kEveryUngated[] = {
    Ungated::kReluSquared, Ungated::kGeluTanh, Ungated::kXielu, Ungated::kRelu,
    Ungated::kGelu,        Ungated::kSilu,     Ungated::kClamp};
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
        case Ungated::kRelu: return "relu";
        case Ungated::kGelu: return "gelu";
        case Ungated::kSilu: return "silu";
        case Ungated::kClamp: return "clamp";
    }
    return "";
}

}  // namespace weft
