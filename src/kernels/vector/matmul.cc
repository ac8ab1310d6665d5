// Quantized weights times prepared activations: chooses the kernel for each type.
#include "kernels/vector/set.h"
#if defined(WEFT_OWN_PRODUCTS)
#include WEFT_SET_FILE(low_bits.h)
#else
#include "kernels/vector/low_bits.h"
#endif

namespace weft::kernels::WEFT_SET {

// products.h: instantiated in products_*.cc, each of which compiles in seconds.
template <typename Block>
void Strips(const MatMulArgs& args, Range rows);

void MatMul(const MatMulArgs& args, int part, int parts) {
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    switch (strips::FormOf(args.weight.dtype)) {
        case strips::Form::kFloats:
        case strips::Form::kFP8: return MatMulFloats(args, rows);
        case strips::Form::kQ4_0: return Strips<BlockQ4_0>(args, rows);
        case strips::Form::kQ4_1: return Strips<BlockQ4_1>(args, rows);
        case strips::Form::kQ5_0: return Strips<BlockQ5_0>(args, rows);
        case strips::Form::kQ5_1: return Strips<BlockQ5_1>(args, rows);
        case strips::Form::kQ8_0: return Strips<BlockQ8_0>(args, rows);
        case strips::Form::kIQ4_NL: return Strips<BlockIQ4_NL>(args, rows);
        case strips::Form::kIQ4_XS: return Strips<BlockIQ4_XS>(args, rows);
        case strips::Form::kMXFP4: return Strips<BlockMXFP4>(args, rows);
        case strips::Form::kW4: return Strips<BlockW4>(args, rows);
        case strips::Form::kW8: return Strips<BlockW8>(args, rows);
        case strips::Form::kNVFP4: return Strips<BlockNVFP4>(args, rows);
        case strips::Form::kTernary: return Strips<BlockTernary>(args, rows);
        case strips::Form::kQ2_K: return Strips<BlockQ2_K>(args, rows);
        case strips::Form::kQ3_K: return Strips<BlockQ3_K>(args, rows);
        case strips::Form::kQ4_K: return Strips<BlockQ4_K>(args, rows);
        case strips::Form::kQ5_K: return Strips<BlockQ5_K>(args, rows);
        case strips::Form::kQ6_K: return Strips<BlockQ6_K>(args, rows);
        case strips::Form::kIQ1_S:
        case strips::Form::kIQ1_M:
        case strips::Form::kIQ2_XXS:
        case strips::Form::kIQ2_XS:
        case strips::Form::kIQ2_S:
        case strips::Form::kIQ3_XXS:
        case strips::Form::kIQ3_S: return MatMulDecoded(args, rows);
    }
}

void SetMatMul(Kernels& table) {
    table.prepared_as = [](DType weight) {
        const bool pairs = weight == DType::kBF16 || weight == DType::kFP8;
        if (Simd::kDots && pairs) return Prepared::kBF16;
        return HasIntegerCodes(weight) ? Prepared::kInt8 : Prepared::kNone;
    };
    table.prepare = Prepare;
    table.matmul = MatMul;
}

}  // namespace weft::kernels::WEFT_SET
