// The scale of a norm: 1 / sqrt(mean of squares + eps), the same in every shader.
float InverseRms(float squares, float count, float eps) {
    precise float mean = squares / count;
    precise float shifted = mean + eps;
    precise float inverse = 1.0 / sqrt(shifted);
    return inverse;
}
