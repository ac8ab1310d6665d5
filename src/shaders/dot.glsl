// Products of 8-bit integers: codes of a weight (types.glsl) times those of x, in the layout of
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
    CodesOf(row, unit, codes);
    [[unroll]] for (uint j = 0; j < QUADS; ++j) {
        const uint four = codes[j];
#if BOOK == 1
        codes[j] = uint(the_book[four & 255] & 255) | uint(the_book[four >> 8 & 255] & 255) << 8 |
                   uint(the_book[four >> 16 & 255] & 255) << 16 | uint(the_book[four >> 24]) << 24;
#elif defined(W8)
        codes[j] = four ^ 0x80808080u;
#endif
    }
}
int SignedZero(WeightRow row, uint unit) {
#if defined(W8)
    return 0;
#else
    return ZeroOf(row, unit);
#endif
}

ivec2 HalfSums(uint both) { return ivec2(bitfieldExtract(int(both), 0, 16), int(both) >> 16); }
