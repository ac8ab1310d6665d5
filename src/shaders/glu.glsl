// Activations and gates. The arithmetic is `precise`, so that every kernel gives the same bits.

// 1 / (1 + exp(-x)), without intermediate overflow.
float Sigmoid(float x) {
    const precise float t = exp(-abs(x));
    const precise float sum = 1.0 + t;
    return (x >= 0.0 ? 1.0 : t) / sum;
}

// log(1 + exp(x)). log(1 + t) is the series in s = t / (2 + t), at most 1/3, whose next term is
// below 2^-26 of it.
float Softplus(float x) {
    const float t = exp(-abs(x));
    const float s = t / (2.0 + t), q = s * s;
    float tail = fma(q, 0.076923077, 0.090909091);
    tail = fma(q, fma(q, tail, 0.11111111), 0.14285714);
    tail = fma(q, fma(q, tail, 0.2), 0.33333333);
    return max(x, 0.0) + 2.0 * fma(s * q, tail, s);
}

// x in [-most, most]. NaN stays NaN, which min, max and clamp may drop.
float Limit(float x, float most) {
    return x > most ? most : x < -most ? -most : x;
}

// act(gate) * up; the activation is given by its number (tensor/activation.h).
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
            const float low = gate > 7.0 ? 7.0 : gate;
            value = low * Sigmoid(1.702 * low) * (Limit(up, 7.0) + 1.0);
        }
    }
    return value;
}
