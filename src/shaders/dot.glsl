// Products of 8-bit integers: codes of a weight (types.glsl) times codes of x, in the layout of
// quantize_x.comp: contiguous int8 codes; for each 32 columns a float scale, and the sums of the
// first and second 16 codes as two int16.
//
// A product of 32 columns is exact as an integer (below 2^23) before it is scaled.
#extension GL_EXT_spirv_intrinsics : require

// OpSDot of two words of four int8 (format 0: PackedVectorFormat4x8Bit).
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450)
int PackedDot(uint a, uint b, spirv_literal int format);
int Dot4(uint a, uint b) { return PackedDot(a, b, 0); }

// Whether each half of 32 columns has its own scale, and whether there are offsets.
#if defined(Q2_K) || defined(Q3_K) || defined(Q6_K) || defined(IQ1_M) || \
    defined(IQ2_XS) || defined(IQ2_S) || defined(NVFP4)
#define PARTS 2
#else
#define PARTS 1
#endif
#if defined(Q4_1) || defined(Q5_1) || defined(Q2_K) || defined(Q4_K) || defined(Q5_K) || defined(W8)
#define OFFSETS 1
#else
#define OFFSETS 0
#endif

// The codes of a unit as int8, before SignedZero() is subtracted.
void SignedCodes(WeightRow row, uint unit, out uint codes[QUADS]) {
#if BOOK == 1
    const PackedCodes packed = PackedCodesOf(row, unit);
    [[unroll]] for (uint j = 0; j < QUADS / 2; ++j) {
        const uint word = packed.low[j];
        const uint a = the_pairs[word & 255], b = the_pairs[word >> 8 & 255];
        const uint c = the_pairs[word >> 16 & 255], d = the_pairs[word >> 24];
        const uint low = a | b << 16, high = c | d << 16;  // entries of low and high codes in turn
        codes[2 * j] = (low & 0xff) | (low >> 8 & 0xff00) | (high & 0xff) << 16 |
                       (high & 0xff0000) << 8;
        codes[2 * j + 1] = (low >> 8 & 0xff) | (low >> 16 & 0xff00) | (high & 0xff00) << 8 |
                           (high & 0xff000000u);
    }
#else
    CodesOf(row, unit, codes);
#if defined(W8)
    [[unroll]] for (uint j = 0; j < QUADS; ++j) codes[j] ^= 0x80808080u;
#endif
#endif
}
int SignedZero(WeightRow row, uint unit) {
#if defined(W8)
    return 0;
#else
    return ZeroOf(row, unit);
#endif
}

ivec2 HalfSums(uint both) { return ivec2(bitfieldExtract(int(both), 0, 16), int(both) >> 16); }
