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

namespace {

// Calls the kernel of the weight's type; false if none of these blocks has the type.
template <typename... Block>
bool Multiply(DType type, const MatMulArgs& args, Range rows) {
    return ((type == Block::kType && (Strips<Block>(args, rows), true)) || ...);
}

// Whether blocks are decoded once for many tokens (decoded.cc): those whose codes are in two
// places, on 8 lanes, from more than two tiles of tokens on (measured; Q4_K gains nothing).
bool DecodesFirst(const MatMulArgs& args) {
    const DType type = args.weight.dtype;
    return Simd::kLanes == 8 && (type == DType::kQ5_K || type == DType::kQ6_K) && args.rows > 8;
}

}  // namespace

void MatMul(const MatMulArgs& args, int part, int parts) {
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    DType type = args.weight.dtype;
    if (!Info(type).quantized || type == DType::kFP8) return MatMulFloats(args, rows);
    if (type == DType::kTQ1_0) type = DType::kTQ2_0;  // packed alike
    if (DecodesFirst(args)) return MatMulDecoded(args, rows);
    if (Multiply<BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockIQ4_NL, BlockIQ4_XS,
                 BlockMXFP4, BlockW4, BlockW8, BlockNVFP4, BlockTernary, BlockQ2_K, BlockQ3_K,
                 BlockQ4_K, BlockQ5_K, BlockQ6_K>(type, args, rows)) {
        return;
    }
    MatMulDecoded(args, rows);
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
