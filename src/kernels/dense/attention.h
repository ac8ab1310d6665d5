// Causal attention over the rows of each sequence of a step, as training runs it: no cache, forward
// and backward in blocks, so that no matrix of scores is kept (Dao et al. 2022; Dao 2023). What is
// computed, and the meaning of every field of `args`, is that of CausalAttention and
// CausalAttentionGrad in kernels/reference/backward.h, but for how parts share out the work. The
// functions stand in the table of dense/dense.h.
#pragma once

#include "kernels/dense/gemm.h"
#include "kernels/reference/backward.h"

namespace weft::kernels::dense {

// Sequences may differ in length; head_dim is a multiple of 8. With Compute::kBf16 all products'
// operands are rounded, probabilities among them; softmax stays float32. Numbers are finite: a NaN
// or an infinity may reach rows before its own.
struct CausalArgs {
    reference::CausalAttentionArgs args;
    float* out = nullptr;  // [rows, heads * head_dim]
    int64_t out_stride = 0;
    // log(sum(exp(scale * q . k))) of each row of a sequence, for the backward: [heads, rows],
    // heads lse_stride apart.
    float* lse = nullptr;
    int64_t lse_stride = 0;
    Compute compute = Compute::kF32;
};

// dk and dv are sums over the query heads of a KV head.
struct CausalGradArgs {
    reference::CausalAttentionGradArgs args;
    const float* out = nullptr;  // what the forward left
    int64_t out_stride = 0;
    const float* lse = nullptr;
    int64_t lse_stride = 0;
    Compute compute = Compute::kF32;
};

// What the functions of each level are:
//   int64_t CausalScratchBytes(const CausalArgs&), int64_t CausalGradScratchBytes(...)
//     of scratch that one part needs: some hundreds of KB, and 8 (forward) or 12 bytes at most
//     for each element of the longest sequence's K of one head
//   void Causal(const CausalArgs&, std::span<std::byte> scratch, int part, int parts)
//     parts share out blocks of queries
//   void CausalGrad(const CausalGradArgs&, std::span<std::byte> scratch, int part, int parts)
//     parts share out KV heads of sequences, each with its query heads, by their cost
// Results do not depend on parts or on the other sequences.

}  // namespace weft::kernels::dense
