// Rotation by an angle. The angle of position p is the sum of the angles of p / 256 * 256 and of p
// % 256. The host computes tables of cosines and sines for both angles in float64. A GPU's sine may
// be off by 2^-11.
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Angles { vec2 at[]; };

// Cosine and sine of a pair's angle. fine, coarse: [256, pairs], [_, pairs].
vec2 AngleOf(Angles fine, Angles coarse, uint position, uint pairs, uint pair) {
    const vec2 a = coarse.at[position / 256 * pairs + pair];
    const vec2 b = fine.at[position % 256 * pairs + pair];
    return vec2(fma(a.x, b.x, -(a.y * b.y)), fma(a.y, b.x, a.x * b.y));
}
vec2 Rotate(vec2 pair, vec2 angle) {
    return vec2(fma(pair.x, angle.x, -(pair.y * angle.y)), fma(pair.y, angle.x, pair.x * angle.y));
}
