// Quantized weights times quantized activations: chooses the kernel for each type.
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
    switch (weight_tiles::FormOf(args.weight.dtype)) {
        case weight_tiles::Form::kFloats:
        case weight_tiles::Form::kFP8: return MatMulFloats(args, rows);
        case weight_tiles::Form::kQ4_0: return Strips<BlockQ4_0>(args, rows);
        case weight_tiles::Form::kQ4_1: return Strips<BlockQ4_1>(args, rows);
        case weight_tiles::Form::kQ5_0: return Strips<BlockQ5_0>(args, rows);
        case weight_tiles::Form::kQ5_1: return Strips<BlockQ5_1>(args, rows);
        case weight_tiles::Form::kQ8_0: return Strips<BlockQ8_0>(args, rows);
        case weight_tiles::Form::kIQ4_NL: return Strips<BlockIQ4_NL>(args, rows);
        case weight_tiles::Form::kIQ4_XS: return Strips<BlockIQ4_XS>(args, rows);
        case weight_tiles::Form::kMXFP4: return Strips<BlockMXFP4>(args, rows);
        case weight_tiles::Form::kW4: return Strips<BlockW4>(args, rows);
        case weight_tiles::Form::kW8: return Strips<BlockW8>(args, rows);
        case weight_tiles::Form::kNVFP4: return Strips<BlockNVFP4>(args, rows);
        case weight_tiles::Form::kTernary: return Strips<BlockTernary>(args, rows);
        case weight_tiles::Form::kQ2_K: return Strips<BlockQ2_K>(args, rows);
        case weight_tiles::Form::kQ3_K: return Strips<BlockQ3_K>(args, rows);
        case weight_tiles::Form::kQ4_K: return Strips<BlockQ4_K>(args, rows);
        case weight_tiles::Form::kQ5_K: return Strips<BlockQ5_K>(args, rows);
        case weight_tiles::Form::kQ6_K: return Strips<BlockQ6_K>(args, rows);
        case weight_tiles::Form::kIQ1_S:
        case weight_tiles::Form::kIQ1_M:
        case weight_tiles::Form::kIQ2_XXS:
        case weight_tiles::Form::kIQ2_XS:
        case weight_tiles::Form::kIQ2_S:
        case weight_tiles::Form::kIQ3_XXS:
        case weight_tiles::Form::kIQ3_S: return MatMulDecoded(args, rows);
    }
}

void SetMatMul(Kernels& table) {
    table.activation_format = [](DType weight) {
        const bool pairs = weight == DType::kBF16 || weight == DType::kFP8;
        if (Simd::kDots && pairs) return ActivationFormat::kBF16;
        return HasIntegerCodes(weight) ? ActivationFormat::kInt8 : ActivationFormat::kNone;
    };
    table.quantize_activations = QuantizeActivations;
    table.matmul = MatMul;
}

}  // namespace weft::kernels::WEFT_SET
