// The instruction set that a file of vector/ is compiled for.
//
// The build compiles vector/*.cc once per instruction set, with the compiler flags of that set and
// with WEFT_SET defined as its name (cmake/kernels.cmake). All code here is in the namespace of the
// set, so that the linker never replaces a function of one set by the same function of another set.
// Code accesses the set through the class Simd of ../SET/simd.h:
//   Float     a vector of kLanes floats: 8 or 16. Loads and stores accept float, bfloat16
//             (uint16_t) and float16 (Half); LoadFirst and StoreFirst handle fewer than kLanes
//   Wide      the same lanes as doubles
//   Int       the same lanes as 32-bit integers, or as their bytes
//   Short     sums of products of bytes: each lane is one 32-bit sum, or two 16-bit sums
// and constants: kRegisters (16 or 32 such vectors), kDots (multiplies pairs of BF16), kMatrices
// (multiplies two rows by two tokens, dots.h), and with 8 lanes kPairSums (a Short has two 16-bit
// sums).
// A set with faster products than the products of low_bits.h, grids.h and micro.h (bfloat16)
// defines WEFT_OWN_PRODUCTS, and has its own low_bits.h, grids.h and units.h.
//
// Elements after the last whole vector are computed by the same operations. So the bits of an
// element do not depend on its position in a vector, nor those of a row on its position in a part.
// Sets with the same kLanes give the same bits.
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

// The kernel table of the set, and the functions with which the files of vector/ fill it.
Kernels Table();
void SetRows(Kernels& table);
void SetAttention(Kernels& table);
void SetLatent(Kernels& table);
void SetAdapt(Kernels& table);
void SetGemm(Kernels& table);
void SetCausal(Kernels& table);
void SetRecurrent(RecurrentKernels& table);
void SetSparse(SparseKernels& table);
void SetMatMul(Kernels& table);

// MatMul is in matmul.cc, its variants for some weight types in floats.cc and decoded.cc. The
// variants compute rows [rows.begin, rows.end) of y for all tokens; rows.begin is a strip's first
// row. Prepare: quantize_activations.cc.
void MatMul(const MatMulArgs& args, int part, int parts);
void MatMulFloats(const MatMulArgs& args, Range rows);
void MatMulDecoded(const MatMulArgs& args, Range rows);
void QuantizeActivations(const QuantizeActivationsArgs& args, int part, int parts);

// The kernels of sparse.h that latent.cc (the first) and attention.cc define.
void SparseLatent(const SparseLatentArgs& args, int part, int parts);
void BlockAttention(const BlockAttentionArgs& args, int part, int parts);
void AttendWindows(const WindowAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::WEFT_SET
