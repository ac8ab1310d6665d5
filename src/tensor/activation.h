// Activations of gated linear units (Shazeer 2020): out = act(gate) * up. Programs and kernels use
// these definitions.
#pragma once

namespace weft {

enum class Activation {
    kSilu,      // a / (1 + exp(-a)); as a gated unit: SwiGLU
    kGeluTanh,  // a / (1 + exp(-2 u)), u = sqrt(2 / pi) (a + 0.044715 a^3): GELU by tanh; as a
                // gated unit: GeGLU
    // gpt-oss: clamps gate to at most 7 and up to +-7; out = gate / (1 + exp(-1.702 gate)) * (up +
    // 1).
    kClampedSilu,
};

inline const char* ActivationName(Activation activation) {
    switch (activation) {
        case Activation::kSilu: return "silu";
        case Activation::kGeluTanh: return "gelu_tanh";
        case Activation::kClampedSilu: return "clamped_silu";
    }
    return "";
}

}  // namespace weft
