// Codebook types (src/backend/gpu/dispatch/grid_weights.cc): plane 0 has indices and signs,
// plane 1 other data of each 32 columns, the last plane the scale of each 256, plane 3 the
// codebook, one byte per value.

uint EvenSigns(uint bits) {
    const uint seven = bits & 127;
    return seven | uint(bitCount(seven) & 1) << 7;
}
// Applies signs to four nonzero magnitudes, as int8: negative where the bit of `signs` is set.
uint WithSigns(uint four, uint signs) {
    const uint minus = (signs & 15) * 0x00204081u & 0x01010101u;
    return (four ^ minus * 255) + minus;
}

#if defined(IQ1_S) || defined(IQ1_M)
// The index of the code book entry of eight columns, and the sign bit of their offset.
uvec2 OneOf(WeightRow row, uint unit, uint g) {
    const uint index = Words(row.plane[0]).at[unit] >> 8 * g & 255;
    const uint more = ShortAt(row.plane[1], unit);
#if defined(IQ1_S)
    return uvec2(index | (more >> 3 * g & 7) << 8, more >> 15);
#else
    return uvec2(index | (more >> 4 * g & 7) << 8, more >> 4 * g + 3 & 1);
#endif
}
#elif GRID == 8
uvec2 OneOf(WeightRow row, uint unit, uint g) {
    const uvec2 both = Words2(row.plane[0]).at[unit];
#if defined(IQ2_XXS)
    return uvec2(both.x >> 8 * g & 255, EvenSigns(both.y >> 7 * g));
#elif defined(IQ2_XS)
    const uint word = both[g >> 1] >> 16 * (g & 1) & 0xffff;
    return uvec2(word & 511, EvenSigns(word >> 9));
#else
    const uint high = ShortAt(row.plane[1], unit) >> 2 * g & 3;
    return uvec2(both.x >> 8 * g & 255 | high << 8, both.y >> 8 * g & 255);
#endif
}
#else
// The entry and the signs (the lowest four bits) of four columns.
uvec2 OneOf(WeightRow row, uint unit, uint g) {
    const uint index = Words(row.plane[0]).at[3 * unit + (g >> 2)] >> 8 * (g & 3) & 255;
    const uint signs = Words(row.plane[0]).at[3 * unit + 2];
#if defined(IQ3_XXS)
    return uvec2(index, EvenSigns(signs >> 7 * (g >> 1)) >> 4 * (g & 1));
#else
    const uint high = ShortAt(row.plane[1], unit) >> g & 1;
    return uvec2(index | high << 8, signs >> 4 * g);
#endif
}
#endif

// The codes of a unit, four per word.
void CodesOf(WeightRow row, uint unit, out uint codes[QUADS]) {
    [[unroll]] for (uint g = 0; g < UNIT / GRID; ++g) {
        const uvec2 one = OneOf(row, unit, g);
#if defined(IQ1_S) || defined(IQ1_M)
        const uvec2 entry = Words2(row.plane[3]).at[one.x];
        const uint plus = one.y != 0 ? 0 : 0x02020202u;
        codes[2 * g] = entry.x + plus;
        codes[2 * g + 1] = entry.y + plus;
#elif GRID == 8
        const uvec2 entry = Words2(row.plane[3]).at[one.x];
        codes[2 * g] = WithSigns(entry.x, one.y);
        codes[2 * g + 1] = WithSigns(entry.y, one.y >> 4);
#else
        codes[g] = WithSigns(Words(row.plane[3]).at[one.x], one.y);
#endif
    }
}

// Scales of the unit's first and second 16 columns.
vec2 GridScales(WeightRow row, uint unit) {
#if defined(IQ1_M)
    const uint sub = ByteAt(row.plane[2], unit);
    const uvec2 all = Words2(row.plane[2]).at[unit >> 3] >> 6 & 0x03030303u;
    const uvec2 pairs = (all | all >> 6) & 0x000f000fu;
    const uvec2 bytes = (pairs | pairs >> 12) & 0xffu;
    precise vec2 scale = HalvesOf(bytes.x | bytes.y << 8).x *
                         vec2(2 * (sub & 7) + 1, 2 * (sub >> 3 & 7) + 1);
    return scale * 0.125;
#else
    const float d = HalfAt(row.plane[SCALE_PLANE], unit >> 3);
#if defined(IQ1_S)
    precise float scale = d * float(2 * (ShortAt(row.plane[1], unit) >> 12 & 7) + 1);
    return vec2(scale * 0.125);
#elif defined(IQ2_XXS)
    precise float scale = d * (0.5 + float(Words2(row.plane[0]).at[unit].y >> 28));
    return vec2(scale * 0.25);
#elif defined(IQ2_XS) || defined(IQ2_S)
#if defined(IQ2_XS)
    const uint sub = ByteAt(row.plane[1], unit);
#else
    const uint sub = ShortAt(row.plane[1], unit) >> 8;
#endif
    precise vec2 scale = d * (0.5 + vec2(sub & 15, sub >> 4));
    return scale * 0.25;
#elif defined(IQ3_XXS)
    precise float scale = d * (0.5 + float(Words(row.plane[0]).at[3 * unit + 2] >> 28));
    return vec2(scale * 0.5);
#else
    return vec2(d * float(1 + 2 * (ShortAt(row.plane[1], unit) >> 8)));
#endif
#endif
}
