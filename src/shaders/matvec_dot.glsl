// Part of matvec.comp: products of int8. x is an address within the codes of x.
#include "dot.glsl"
#define X_BYTES 1

// The product of a unit of x and a unit of the weight, without the scale of x.
float UnitProduct(uint w[QUADS], Scales s, int zero, uint x[QUADS], ivec2 sums) {
    ivec2 dots = ivec2(0);
    [[unroll]] for (uint j = 0; j < QUADS; ++j) {
        const uint part = PARTS == 2 ? j / 4 : 0;
        dots[part] += Dot4(w[j], x[j]);
    }
    precise float value;
#if PARTS == 2
    const precise vec2 halves = s.scale * vec2(dots - zero * sums);
    value = halves.x + halves.y;
#else
    value = s.scale.x * float(dots.x - zero * (sums.x + sums.y));
#endif
#if OFFSETS == 1
#if PARTS == 2
    const precise vec2 offsets = s.offset * vec2(sums);
    const precise float both = offsets.x + offsets.y;
    value = value + both;
#else
    value = fma(s.offset.x, float(sums.x + sums.y), value);
#endif
#endif
    return value;
}

// sums += factor * (rows of x . rows of the weight), over this invocation's units.
void Multiply(uint64_t x, uint64_t x_stride, uint rows, uint first, uint n, float factor,
              uint lane, inout float sums[kSums]) {
    precise float own[kSums];
    [[unroll]] for (uint i = 0; i < kSums; ++i) own[i] = 0;
    WeightRow at[kOut];
    [[unroll]] for (uint o = 0; o < kOut; ++o) at[o] = RowOf(min(first + o, n - 1));
    const uint64_t scales = a.x + uint64_t(a.scales_at) * 256;
    const uint units = a.cols / UNIT;
    for (uint unit = lane; unit < units; unit += gl_WorkGroupSize.x) {
        uint w[kOut][QUADS];
        Scales s[kOut];
        int zero[kOut];
        [[unroll]] for (uint o = 0; o < kOut; ++o) {
            SignedCodes(at[o], unit, w[o]);
            s[o] = ScalesOf(at[o], unit);
            zero[o] = SignedZero(at[o], unit);
        }
        [[unroll]] for (uint t = 0; t < kRows; ++t) {
            const uint64_t row = x + min(t, rows - 1) * x_stride;
            uint codes[QUADS];
            [[unroll]] for (uint i = 0; i < QUADS / 4; ++i) {
                const uvec4 four = Words4(row).at[unit * (QUADS / 4) + i];
                [[unroll]] for (uint j = 0; j < 4; ++j) codes[4 * i + j] = four[j];
            }
            const uvec2 block = Words2(scales + (row - a.x) / 4).at[unit * UNIT / 32];
            ivec2 halves = HalfSums(block.y);
            if (UNIT == 16) halves = ivec2(halves[unit & 1], 0);
            const float scale = uintBitsToFloat(block.x);
            [[unroll]] for (uint o = 0; o < kOut; ++o) {
                const float product = UnitProduct(w[o], s[o], zero[o], codes, halves);
                own[t * kOut + o] = fma(scale, product, own[t * kOut + o]);
            }
        }
    }
    [[unroll]] for (uint i = 0; i < kSums; ++i) {
        precise float sum = kKind == kSum ? fma(factor, own[i], sums[i]) : own[i];
        sums[i] = sum;
    }
}
