// Numbers as the sum of two float32 (Dekker 1971; Knuth's TwoSum): x is the rounded number, y its
// rounding error. A chain of n additions of numbers of one sign has a relative error below n^2
// 2^-48. Loops that call these functions must not be unrolled: glslc -O copies their bodies without
// `precise`.
vec2 TwoSum(float a, float b) {
    precise const float sum = a + b;
    precise const float of_b = sum - a;
    precise const float of_a = sum - of_b;
    precise const float lost = (a - of_a) + (b - of_b);
    return vec2(sum, lost);
}
vec2 AddTo(vec2 sum, float value) {
    const vec2 both = TwoSum(sum.x, value);
    precise const float rest = sum.y + both.y;
    return vec2(both.x, rest);
}
vec2 AddPairs(vec2 a, vec2 b) {
    const vec2 both = TwoSum(a.x, b.x);
    precise const float rest = both.y + (a.y + b.y);
    return TwoSum(both.x, rest);
}
// The square of x, exact unless it is below 2^-100.
vec2 AddSquareTo(vec2 sum, float x) {
    precise const float square = x * x;
    precise const float lost = fma(x, x, -square);
    return AddTo(AddTo(sum, square), lost);
}
