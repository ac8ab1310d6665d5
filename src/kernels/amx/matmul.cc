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

// Multiplies with the decoder of the weight's type; false if none of these has the type.
template <typename... Decoder>
bool Multiply(DType type, const MatMulArgs& args, int part, int parts) {
    return ((type == Decoder::kType && (Quantized<Decoder>(args, part, parts), true)) || ...);
}

}  // namespace

void MatMul(const MatMulArgs& args, int part, int parts) {
    DType type = args.weight.dtype;
    if (type == DType::kBF16) {
        return MatMulBF16(args, Share(args.weight.rows, kStripRows, part, parts));
    }
    if (type == DType::kTQ1_0) type = DType::kTQ2_0;  // packed alike
    if (Multiply<DecodeQ4_0, DecodeQ4_1, DecodeQ5_0, DecodeQ5_1, DecodeQ8_0, DecodeIQ4_NL,
                 DecodeIQ4_XS, DecodeMXFP4, DecodeTernary, DecodeQ2_K, DecodeQ3_K, DecodeQ4_K,
                 DecodeQ5_K, DecodeQ6_K, FromGrid<avx512::GridIQ1_S>, FromGrid<avx512::GridIQ1_M>,
                 FromGrid<avx512::GridIQ2_XXS>, FromGrid<avx512::GridIQ2_XS>,
                 FromGrid<avx512::GridIQ2_S>, FromGrid<avx512::GridIQ3_XXS>,
                 FromGrid<avx512::GridIQ3_S>>(type, args, part, parts)) {
        return;
    }
    // Floats, and W4 and W8: weights minus their zero points do not fit a byte.
    avx512::MatMul(args, part, parts);
}

}  // namespace weft::kernels::amx
