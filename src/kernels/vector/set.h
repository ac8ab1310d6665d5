// The instruction set that a file of vector/ is compiled for.
//
// The build compiles vector/*.cc once for each set, with that set's compiler flags and WEFT_SET as
// its name (cmake/kernels.cmake). All code here stands in the namespace of the set, so that no
// function of one set ever takes the place of another's at link time. What it knows of the set is
// Simd, of ../SET/simd.h:
//   Float     a vector of kLanes floats: 8 or 16. Loads and stores know float, bfloat16 (uint16_t)
//             and float16 (Half); LoadFirst and StoreFirst take fewer than kLanes
//   Wide      the same lanes as doubles
//   Int       the same lanes as 32 bits, or as their bytes
//   Short     sums of products of bytes: a lane is 32 bits, or two sums of 16
// and a few constants: kRegisters (16 or 32, of such vectors), kDots (multiplies pairs of BF16),
// kMatrices (multiplies two rows by two tokens: dots.h).
// A set with better products than low_bits.h, grids.h and the bfloat16 of micro.h says
// WEFT_OWN_PRODUCTS, and has files low_bits.h, grids.h and units.h.
//
// Tails are computed by the same operations as whole vectors: where an element stands in a vector,
// or a row in a part, does not change its bits. Sets with the same kLanes give the same bits.
#pragma once

#include "kernels/kernels.h"

#define WEFT_TEXT(x) #x
// clang-format off
#define WEFT_FILE_OF(set, file) WEFT_TEXT(kernels/set/file)
// clang-format on
#define WEFT_SET_FILE(file) WEFT_FILE_OF(WEFT_SET, file)
#include WEFT_SET_FILE(simd.h)

#define WEFT_INLINE [[gnu::always_inline]] static inline

namespace weft::kernels::WEFT_SET {

using Float = Simd::Float;
using Wide = Simd::Wide;
using dense::CausalArgs, dense::CausalGradArgs, dense::Compute, dense::ConstMatrix, dense::Element,
    dense::ElementBytes, dense::GemmArgs, dense::Half, dense::Matrix, dense::WithTypes;

// The set's table, and the parts of it that a file of vector/ has.
Kernels Table();
void SetRows(Kernels& table);
void SetAttention(Kernels& table);
void SetLatent(Kernels& table);
void SetAdapt(Kernels& table);
void SetGemm(Kernels& table);
void SetCausal(Kernels& table);
void SetMatMul(Kernels& table);

// matmul.cc and, for some types of weights, floats.cc and decoded.cc: rows [rows.begin, rows.end)
// of y for every token; rows.begin is a strip's first row. Prepare: prepare.cc.
void MatMul(const MatMulArgs& args, int part, int parts);
void MatMulFloats(const MatMulArgs& args, Range rows);
void MatMulDecoded(const MatMulArgs& args, Range rows);
void Prepare(const PrepareArgs& args, int part, int parts);

}  // namespace weft::kernels::WEFT_SET
