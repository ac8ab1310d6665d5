#include "kernels/amx/matmul.h"

#include "kernels/amx/bf16.h"
#include "kernels/amx/int8.h"
#include "kernels/avx512/matmul.h"

namespace weft::kernels::amx {
namespace {

constexpr int64_t kFewestTokens = 8;  // for which decoding into tiles pays

template <typename Decoder>
void Quantized(const MatMulArgs& args, Range rows) {
    if (rows.begin < rows.end) Int8Tiles<Decoder>(args).Run(rows);
}

}  // namespace

void MatMul(const MatMulArgs& args, int part, int parts) {
    const strips::Form form = strips::FormOf(args.weight.dtype);
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    if (args.weight.dtype == DType::kBF16) return MatMulBF16(args, rows);
    if (args.rows < kFewestTokens) return avx512::MatMul(args, part, parts);
    switch (form) {
        case strips::Form::kFloats:
        case strips::Form::kW4:  // weights less their zero points do not fit a byte
        case strips::Form::kW8: return avx512::MatMul(args, part, parts);
        case strips::Form::kQ4_0: return Quantized<DecodeQ4_0>(args, rows);
        case strips::Form::kQ4_1: return Quantized<DecodeQ4_1>(args, rows);
        case strips::Form::kQ5_0: return Quantized<DecodeQ5_0>(args, rows);
        case strips::Form::kQ5_1: return Quantized<DecodeQ5_1>(args, rows);
        case strips::Form::kQ8_0: return Quantized<DecodeQ8_0>(args, rows);
        case strips::Form::kIQ4_NL: return Quantized<DecodeIQ4_NL>(args, rows);
        case strips::Form::kIQ4_XS: return Quantized<DecodeIQ4_XS>(args, rows);
        case strips::Form::kMXFP4: return Quantized<DecodeMXFP4>(args, rows);
        case strips::Form::kTernary: return Quantized<DecodeTernary>(args, rows);
        case strips::Form::kQ2_K: return Quantized<DecodeQ2_K>(args, rows);
        case strips::Form::kQ3_K: return Quantized<DecodeQ3_K>(args, rows);
        case strips::Form::kQ4_K: return Quantized<DecodeQ4_K>(args, rows);
        case strips::Form::kQ5_K: return Quantized<DecodeQ5_K>(args, rows);
        case strips::Form::kQ6_K: return Quantized<DecodeQ6_K>(args, rows);
        case strips::Form::kIQ1_S: return Quantized<FromGrid<avx512::GridIQ1_S>>(args, rows);
        case strips::Form::kIQ1_M: return Quantized<FromGrid<avx512::GridIQ1_M>>(args, rows);
        case strips::Form::kIQ2_XXS: return Quantized<FromGrid<avx512::GridIQ2_XXS>>(args, rows);
        case strips::Form::kIQ2_XS: return Quantized<FromGrid<avx512::GridIQ2_XS>>(args, rows);
        case strips::Form::kIQ2_S: return Quantized<FromGrid<avx512::GridIQ2_S>>(args, rows);
        case strips::Form::kIQ3_XXS: return Quantized<FromGrid<avx512::GridIQ3_XXS>>(args, rows);
        case strips::Form::kIQ3_S: return Quantized<FromGrid<avx512::GridIQ3_S>>(args, rows);
    }
}

}  // namespace weft::kernels::amx
