// Element-wise y (and z) = f(a, b, c), of any types. b may have one element per column, or one per
// group of `cols` elements (a gate). f is kMap (maps.glsl). kSparsify: b is the moments of
// a row of `above` elements. kIdentities: b is the weights of a row's `length` experts, and c their
// numbers.
#version 460
#include "element.glsl"
#include "glu.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kMap = 0;
layout(constant_id = 2) const uint kTypes = 0;  // of a, b, c, y, z
layout(constant_id = 3) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t a, b, c, y, z;
    uint count, cols;
    float factor;
    uint length, offset;
    float above, below, beta, eps;  // of xIELU
};

#define MAP(name, number) const uint name = number;
#include "maps.glsl"

// 1 - tanh(v)^2, computed without cancellation where tanh is near 1.
float TanhSlope(float v) {
    const float t = exp(-2.0 * abs(v)), sum = 1.0 + t;
    return 4.0 * t / (sum * sum);
}
// act(x) / x, and the derivative of act, for SiLU, or GELU by tanh.
vec2 SigmoidUnit(float x, bool gelu) {
    const float kRoot = 0.7978845608;  // sqrt(2 / pi)
    const float square = 0.044715 * x * x;
    const float u = gelu ? 2.0 * kRoot * x * (1.0 + square) : x;
    const float slope = gelu ? 2.0 * kRoot * (1.0 + 3.0 * square) : 1.0;
    const float part = Sigmoid(u);
    return vec2(part, part * (1.0 + x * slope * Sigmoid(-u)));
}
// The gradients of gate and up for act(gate) * up. If a limit holds a value, its gradient is zero.
vec2 GluGrad(float dout, float gate, float up) {
    if (kMap == kClampedSiluGrad) {
        const float low = min(gate, 7.0), part = Sigmoid(1.702 * low);
        const float slope = part * (1.0 + 1.702 * low * Sigmoid(-1.702 * low));
        return vec2(gate <= 7.0 ? dout * (clamp(up, -7.0, 7.0) + 1.0) * slope : 0.0,
                    abs(up) <= 7.0 ? dout * low * part : 0.0);
    }
    if (kMap == kLimitedSiluGrad || kMap == kLimitedGateGrad) {
        const float low = kMap == kLimitedGateGrad ? min(gate, factor) : gate;
        const vec2 unit = SigmoidUnit(low, false);
        const bool passes = low * unit.x <= factor && (kMap == kLimitedSiluGrad || gate <= factor);
        return vec2(passes ? dout * clamp(up, -factor, factor) * unit.y : 0.0,
                    abs(up) <= factor ? dout * min(low * unit.x, factor) : 0.0);
    }
    const vec2 unit = SigmoidUnit(gate, kMap == kGeluTanhGrad);
    return vec2(dout * up * unit.y, dout * gate * unit.x);
}

// expm1(v) - v for v <= 0. Near 0, the series, whose next term is below 2^-26 of its sum.
float BendBelow(float v) {
    if (v < -0.35) return exp(v) - 1.0 - v;
    precise float sum = fma(v, 1.9841270e-4, 1.3888889e-3);
    sum = fma(v, sum, 8.3333333e-3);
    sum = fma(v, sum, 0.041666667);
    sum = fma(v, sum, 0.16666667);
    return v * v * fma(v, sum, 0.5);
}
float Xielu(float x) {
    const float low = min(x, eps);
    const precise float bent = x > 0.0 ? above * x * x : below * (BendBelow(low) + (low - x));
    const precise float y = bent + beta * x;
    return y;
}

float XieluSlope(float x) {
    if (x > 0.0) return 2.0 * above * x + beta;
    return below * ((x < eps ? exp(x) : 0.0) - 1.0) + beta;
}

// Phi(-|x|), where Phi is the normal distribution, by the complementary error function of |x| /
// sqrt(2) (Press et al. 1992: relative
// error 1.2e-7).
float NormalTail(float x) {
    const float z = 0.70710678 * abs(x), t = 1.0 / (1.0 + 0.5 * z);
    precise float sum = fma(t, 0.17087277, -0.82215223);
    sum = fma(t, sum, 1.48851587);
    sum = fma(t, sum, -1.13520398);
    sum = fma(t, sum, 0.27886807);
    sum = fma(t, sum, -0.18628806);
    sum = fma(t, sum, 0.09678418);
    sum = fma(t, sum, 0.37409196);
    sum = fma(t, sum, 1.00002368);
    sum = fma(t, sum, -1.26551223);
    return 0.5 * t * exp(fma(-z, z, sum));
}
float Gelu(float x) {
    const float tail = NormalTail(x);
    return x * (x > 0.0 ? 1.0 - tail : tail);
}
float GeluSlope(float x) {
    const float tail = NormalTail(x);
    return (x > 0.0 ? 1.0 - tail : tail) + 0.39894228 * x * exp(-0.5 * x * x);
}
float SlopeOf(float x) {
    if (kMap == kReluSquaredGrad) return 2.0 * max(x, 0.0);
    if (kMap == kXieluGrad) return XieluSlope(x);
    if (kMap == kReluGrad) return x > 0.0 ? 1.0 : 0.0;
    if (kMap == kExactGeluGrad) return GeluSlope(x);
    if (kMap == kClampGrad) return abs(x) <= factor ? 1.0 : 0.0;
    return SigmoidUnit(x, kMap == kGeluAloneGrad).y;
}

// A function of dout, gate and up, with two results.
bool IsGluGrad() {
    return kMap == kSiluGrad || kMap == kGeluTanhGrad ||
           kMap >= kClampedSiluGrad && kMap <= kLimitedGateGrad;
}
// A function of x alone.
bool IsAlone() {
    return kMap == kScale || kMap == kSoftCap || kMap == kReluSquared || kMap == kGeluAlone ||
           kMap >= kXielu && kMap <= kClamp;
}

// A function of x and of an element for the whole row or column.
bool IsSpread() {
    return kMap == kAddBias || kMap == kSparsify || kMap == kIdentities ||
           kMap >= kGateRows && kMap <= kScaleByPosition;
}

float Relu(float x) { return x <= 0.0 ? 0.0 : x; }  // NaN stays NaN

float Of(float x, float with) {
    if (kMap == kAdd || kMap == kAddBias) return x + with;
    if (kMap == kScale) return factor * x;
    if (kMap == kSoftCap) return IsNan(x) ? x : factor * Tanh(x / factor);
    if (kMap == kGateRows) return x * Sigmoid(with);
    if (kMap == kSoftplusRows) return x * Softplus(with);
    if (kMap == kScaleByPosition || kMap == kProductRows || kMap == kIdentities) return x * with;
    if (kMap == kSparsify) return Relu(x - with);
    if (kMap == kReluSquared) return Relu(x) * Relu(x);
    if (kMap == kGeluAlone) return Glu(1, x, 1.0);
    if (kMap == kXielu) return Xielu(x);
    if (kMap == kRelu) return Relu(x);
    if (kMap == kGelu) return Gelu(x);
    if (kMap == kSiluAlone) return Glu(0, x, 1.0);
    if (kMap == kClamp) return Limit(x, factor);
    if (kMap == kLimitedSilu || kMap == kLimitedGate) {
        const float gate = kMap == kLimitedGate && x > factor ? factor : x;
        const float open = Glu(0, gate, 1.0);
        return (open > factor ? factor : open) * Limit(with, factor);
    }
    if (kMap == kSoftCapGrad) return x * TanhSlope(with / factor);
    if (kMap >= kReluSquaredGrad) return x * SlopeOf(with);
    return Glu(kMap - kSilu, x, with);
}

// The mean of a row plus `factor` standard deviations.
float CutOf(uint row) {
    const float mean = Floats(b).at[2 * row] / above;
    const float variance = fma(-mean, mean, Floats(b).at[2 * row + 1] / above);
    return fma(factor, sqrt(max(variance, 0.0)), mean);
}

// The sum of the weights of a row's experts from `offset` on.
float WeightOfIdentities(uint row) {
    float sum = 0.0;
    for (uint i = row * length; i < (row + 1) * length; ++i) {
        if (uint(Ints(c).at[i]) >= offset) sum += Floats(b).at[i];
    }
    return sum;
}

// The element of b for a row or gate, and a column.
float Element(uint row, uint column) {
    if (kMap == kSparsify) return CutOf(row);
    if (kMap == kIdentities) return WeightOfIdentities(row);
    if (kMap == kScaleByPosition) {
        return TemperatureAt(Ints(b).at[row], factor, length, offset);
    }
    return Load(b, TypeIn(kTypes, 1), kMap == kAddBias ? column : row);
}

// The elements of b for elements i to i + 3, by their columns or rows.
vec4 Spread(uint i, uint left) {
    uint row = i / cols, column = i % cols;
    vec4 quad = vec4(0);
    float element = Element(row, column);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (k > 0 && k < left && (kMap == kAddBias || column == 0)) element = Element(row, column);
        if (k < left) quad[k] = element;
        if (++column == cols) {
            column = 0;
            ++row;
        }
    }
    return quad;
}

void Map(uint i, uint left) {
    const uint y_type = TypeIn(kTypes, 3);
    if (kMap == kZero) {
        StoreQuad(y, y_type, i, left, kWide, vec4(0));
        return;
    }
    const vec4 x = LoadQuad(a, TypeIn(kTypes, 0), i, left, kWide);
    vec4 with = vec4(0), result, other;
    if (IsSpread()) {
        with = Spread(i, left);
    } else if (!IsAlone()) {
        with = LoadQuad(b, TypeIn(kTypes, 1), i, left, kWide);
    }
    if (IsGluGrad()) {
        const vec4 up = LoadQuad(c, TypeIn(kTypes, 2), i, left, kWide);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            const vec2 both = GluGrad(x[k], with[k], up[k]);
            result[k] = both.x;
            other[k] = both.y;
        }
        StoreQuad(z, TypeIn(kTypes, 4), i, left, kWide, other);
    } else {
        // No loop: unrolled copies would not be precise (shaders.h).
        result = vec4(Of(x.x, with.x), Of(x.y, with.y), Of(x.z, with.z), Of(x.w, with.w));
    }
    StoreQuad(y, y_type, i, left, kWide, result);
}

void main() {
    const uint quads = count / 4 + (count % 4 == 0 ? 0 : 1);
    const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint q = gl_GlobalInvocationID.x; q < quads; q += stride) Map(4 * q, count - 4 * q);
}
