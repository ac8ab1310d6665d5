// Activations and gates. `precise`: the same bits in whichever kernel.

// 1 / (1 + exp(-x)), without an overflow on the way.
float Sigmoid(float x) {
    const precise float t = exp(-abs(x));
    const precise float sum = 1.0 + t;
    return (x >= 0.0 ? 1.0 : t) / sum;
}

// act(gate) * up; the activation by its number (tensor/activation.h).
float Glu(uint activation, float gate, float up) {
    precise float value;
    switch (activation) {
        case 0: value = gate * Sigmoid(gate) * up; break;
        case 1: {
            const precise float u = 0.7978845608 * (gate + 0.044715 * gate * gate * gate);
            value = gate * Sigmoid(2.0 * u) * up;
            break;
        }
        default: {
            const float low = min(gate, 7.0);
            value = low * Sigmoid(1.702 * low) * (clamp(up, -7.0, 7.0) + 1.0);
        }
    }
    return value;
}
