// CPU kernels for the ops of a Program: one table of functions per instruction set.
//
// The reference table (kernels/reference) defines every result in scalar float32, and all other
// tables are tested against it. The code of the other tables is in vector/. It is compiled once per
// instruction set (vector/set.h), with the vector classes of avx2/, avx512/, neon/ or i8mm/. The
// AMX table is the AVX-512 table with other products (amx/), and the AVX-VNNI table is the AVX2
// table with other products of quantized weights (avxvnni/). AVX2, AVX-VNNI, NEON and i8mm give the
// same bits. Products of quantized weights have the same bits on every level except the reference.
// All kernels are plain functions: no allocation, no lock, no state.
#pragma once

#include "hw/cpu.h"
#include "kernels/adapt.h"
#include "kernels/args.h"
#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"
#include "kernels/latent.h"
#include "kernels/recurrent.h"
#include "kernels/sparse.h"

namespace weft::kernels {

// The kernels of one instruction set. The base classes have the kernels for training (GEMM, causal
// attention), for training and inference (rows), for adapters, for layers with a state and for
// sparse attention. The members below are the other kernels for inference.
struct Kernels : dense::GemmKernels,
                 dense::CausalKernels,
                 dense::RowKernels,
                 AdaptKernels,
                 RecurrentKernels,
                 SparseKernels {
    CpuLevel level = CpuLevel::kReference;
    // packed_bytes: the size of a packed [rows, cols] matrix. pack: packs rows [row_begin,
    // row_begin + count) from the file's row-major blocks. row_begin must be a multiple of
    // kStripRows. In the last strip, rows beyond matrix.rows become zeros.
    int64_t (*packed_bytes)(DType dtype, int64_t rows, int64_t cols) = nullptr;
    void (*pack)(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes) = nullptr;
    ActivationFormat (*activation_format)(DType weight) = nullptr;
    int64_t (*quantized_bytes)(int64_t cols) = nullptr;
    Kernel<QuantizeActivationsArgs> quantize_activations = nullptr;
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

// Whether this build has kernels for `level`.
bool IsBuilt(CpuLevel level);
// The table for `level`, which this processor must support. If the build has no such table, returns
// the reference table.
const Kernels& KernelsFor(CpuLevel level);

}  // namespace weft::kernels
