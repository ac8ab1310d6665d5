// Float arrays by device address, and functions with the same result on every device: where GLSL
// leaves accuracy or rounding to the driver (tanh, round, narrower floats), they use only
// operations that it defines.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "guard.glsl"
#include "narrow.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int at[]; };

// Near 0 uses the series, whose next term, 0.0089 x^10, is below half a rounding; otherwise exp.
float Tanh(float x) {
    const float size = abs(x);
    if (size < 0.25) {
        const float s = x * x;
        const float tail =
            fma(s, fma(s, fma(s, 0.021869488, -0.053968254), 0.13333333), -0.33333333);
        return fma(x * s, tail, x);
    }
    const float t = exp(-2.0 * size);
    const float value = (1.0 - t) / (1.0 + t);
    return x < 0.0 ? -value : value;
}

// For positive numbers of at least 2^-126, accurate to 3 roundings (GLSL's may be off by 2^-21 near
// 1). Infinity and NaN are returned unchanged. x is 2^e (1 + r) with r near 0, and log(1 + r) is
// the series in s = r / (2 + r), whose next term, 2/11 s^11, is below 2^-29 of it.
float Log(float x) {
    if ((floatBitsToUint(x) & 0x7f800000u) == 0x7f800000u) return x;
    const uint bits = floatBitsToUint(x) - 0x3f3504f3u;  // of sqrt(1/2)
    const float e = float(int(bits) >> 23);
    const precise float r = uintBitsToFloat((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0;
    const float s = r / (2.0 + r), q = s * s;
    const float tail = q * fma(q, fma(q, fma(q, 0.22222222, 0.28571429), 0.4), 0.66666667);
    // log(1 + r) = 2 s + s tail, and 2 s = r - s r.
    return fma(e, 0.693145752, fma(e, 1.42860677e-6, r - s * (r - tail)));
}

// tensor/temperature.h; exactly 1 before the first step.
float TemperatureAt(int position, float beta, uint length, uint offset) {
    const uint steps = (uint(position) + offset) / length;
    return steps == 0 ? 1.0 : fma(beta, Log(1.0 + float(steps)), 1.0);
}

// Quotient a / b, rounded to nearest except for ties of the last step (GLSL's division may be off
// by 2.5 ulp).
float Divide(float a, float b) {
    const float q = a / b;
    return fma(fma(-q, b, a), 1.0 / b, q);
}

// Rounds half away from zero.
float RoundAway(float x) {
    const float whole = trunc(x);
    return abs(x - whole) >= 0.5 ? whole + sign(x) : whole;
}
