// CPU kernels: what a Program's ops compute, one table of functions for each instruction set.
//
// kernels/reference defines every result in scalar float32, and all other tables are tested against
// it. Those come from vector/, whose code is compiled once for each set (vector/set.h), over the
// vectors of avx2/, avx512/, neon/ or i8mm/; amx/ puts tiles in place of AVX-512's products. AVX2,
// NEON and i8mm give the same bits; products of quantized weights have the same bits on every level
// but the reference. All of them are plain functions: no allocation, no lock, no state.
#pragma once

#include "hw/cpu.h"
#include "kernels/adapt.h"
#include "kernels/args.h"
#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"
#include "kernels/latent.h"

namespace weft::kernels {

// The kernels of one instruction set: those of training, of both, of adapters, and of inference.
struct Kernels : dense::GemmKernels, dense::CausalKernels, dense::RowKernels, AdaptKernels {
    CpuLevel level = CpuLevel::kReference;
    // Weights: bytes of a packed [rows, cols], and packing rows [row_begin, row_begin + count)
    // (row_begin a multiple of kStripRows) from the file's row-major blocks. Rows beyond
    // matrix.rows in the last strip become zeros.
    int64_t (*packed_bytes)(DType dtype, int64_t rows, int64_t cols) = nullptr;
    void (*pack)(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes) = nullptr;
    Prepared (*prepared_as)(DType weight) = nullptr;
    int64_t (*prepared_bytes)(int64_t cols) = nullptr;
    Kernel<PrepareArgs> prepare = nullptr;
    Kernel<MatMulArgs> matmul = nullptr;
    Kernel<EmbeddingArgs> embedding = nullptr;
    Kernel<SumSquaresArgs> sum_squares = nullptr;
    Kernel<RopeTableArgs> rope_table = nullptr;
    Kernel<KvWriteArgs> kv_write = nullptr;
    Kernel<AttentionArgs> attention = nullptr;
    int64_t (*attention_scratch)(int64_t head_dim, int64_t group) = nullptr;  // floats per part
    Kernel<LatentAttentionArgs> latent_attention = nullptr;
    Kernel<SoftCapArgs> soft_cap = nullptr;
};

// Whether this build has kernels of their own for `level`.
bool IsBuilt(CpuLevel level);
// The table for `level`, which this processor must have; a level that this build lacks gives the
// reference.
const Kernels& KernelsFor(CpuLevel level);

}  // namespace weft::kernels
