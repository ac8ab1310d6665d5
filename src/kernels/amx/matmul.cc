#include "kernels/amx/bf16.h"
#include "kernels/amx/int8.h"
#include "kernels/amx/table.h"

namespace weft::kernels::amx {
namespace {

// The number of tokens from which tiles are faster than AVX-512 (measured on Granite Rapids). A
// tile takes as long for 16 columns as for 32, so types with two scales per 32 columns need more.
template <typename Decoder>
constexpr int64_t kLeastTokens = Decoder::kScales == 2 ? 48 : 32;

template <typename Decoder>
void Quantized(const MatMulArgs& args, int part, int parts) {
    if (args.rows < kLeastTokens<Decoder>) return avx512::MatMul(args, part, parts);
    const Range rows = Share(args.weight.rows, kStripRows, part, parts);
    if (rows.begin < rows.end) Int8Tiles<Decoder>(args).Run(rows);
}

}  // namespace

void MatMul(const MatMulArgs& args, int part, int parts) {
    const weight_tiles::Form form = weight_tiles::FormOf(args.weight.dtype);
    if (args.weight.dtype == DType::kBF16) {
        return MatMulBF16(args, Share(args.weight.rows, kStripRows, part, parts));
    }
    switch (form) {
        case weight_tiles::Form::kFloats:
        case weight_tiles::Form::kW4:  // weights minus their zero points do not fit a byte
        case weight_tiles::Form::kW8:
        case weight_tiles::Form::kFP8:
        case weight_tiles::Form::kNVFP4: return avx512::MatMul(args, part, parts);
        case weight_tiles::Form::kQ4_0: return Quantized<DecodeQ4_0>(args, part, parts);
        case weight_tiles::Form::kQ4_1: return Quantized<DecodeQ4_1>(args, part, parts);
        case weight_tiles::Form::kQ5_0: return Quantized<DecodeQ5_0>(args, part, parts);
        case weight_tiles::Form::kQ5_1: return Quantized<DecodeQ5_1>(args, part, parts);
        case weight_tiles::Form::kQ8_0: return Quantized<DecodeQ8_0>(args, part, parts);
        case weight_tiles::Form::kIQ4_NL: return Quantized<DecodeIQ4_NL>(args, part, parts);
        case weight_tiles::Form::kIQ4_XS: return Quantized<DecodeIQ4_XS>(args, part, parts);
        case weight_tiles::Form::kMXFP4: return Quantized<DecodeMXFP4>(args, part, parts);
        case weight_tiles::Form::kTernary: return Quantized<DecodeTernary>(args, part, parts);
        case weight_tiles::Form::kQ2_K: return Quantized<DecodeQ2_K>(args, part, parts);
        case weight_tiles::Form::kQ3_K: return Quantized<DecodeQ3_K>(args, part, parts);
        case weight_tiles::Form::kQ4_K: return Quantized<DecodeQ4_K>(args, part, parts);
        case weight_tiles::Form::kQ5_K: return Quantized<DecodeQ5_K>(args, part, parts);
        case weight_tiles::Form::kQ6_K: return Quantized<DecodeQ6_K>(args, part, parts);
        case weight_tiles::Form::kIQ1_S:
            return Quantized<FromGrid<avx512::GridIQ1_S>>(args, part, parts);
        case weight_tiles::Form::kIQ1_M:
            return Quantized<FromGrid<avx512::GridIQ1_M>>(args, part, parts);
        case weight_tiles::Form::kIQ2_XXS:
            return Quantized<FromGrid<avx512::GridIQ2_XXS>>(args, part, parts);
        case weight_tiles::Form::kIQ2_XS:
            return Quantized<FromGrid<avx512::GridIQ2_XS>>(args, part, parts);
        case weight_tiles::Form::kIQ2_S:
            return Quantized<FromGrid<avx512::GridIQ2_S>>(args, part, parts);
        case weight_tiles::Form::kIQ3_XXS:
            return Quantized<FromGrid<avx512::GridIQ3_XXS>>(args, part, parts);
        case weight_tiles::Form::kIQ3_S:
            return Quantized<FromGrid<avx512::GridIQ3_S>>(args, part, parts);
    }
}

}  // namespace weft::kernels::amx
