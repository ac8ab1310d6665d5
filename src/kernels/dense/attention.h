// Causal attention of training, forward and backward, over the rows of each sequence of a step,
// without a cache. It is computed in blocks, so that the matrix of scores is never stored
// (FlashAttention: Dao et al. 2022; Dao 2023). The functions are called through the table in
// kernels/kernels.h.
#pragma once

#include "kernels/args.h"
#include "kernels/dense/gemm.h"

namespace weft::kernels::dense {

// Row i of a sequence attends to rows FirstKey(i) to i of that sequence in this step. Query head h
// is head `first_head + h` of the model and reads head (first_head + h) / group - first_kv_head of
// k and v. Sequences may differ in length; Sequence's positions and pages are not read. Rows
// outside of all sequences are not written. head_dim is a multiple of 8. q, k, v and out have one
// type.
//
// With Compute::kBf16, the operands of all products, including probabilities, are rounded to
// bfloat16; the softmax is computed in float32. Inputs must be finite: a NaN or an infinity may
// affect the results of earlier rows.
struct CausalArgs {
    std::span<const Sequence> sequences;
    ConstMatrix q;     // [rows, heads * head_dim]
    ConstMatrix k, v;  // [rows, kv_heads * head_dim]
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    int64_t first_head = 0, group = 1, first_kv_head = 0;
    float scale = 1;
    Matrix out;  // [rows, heads * head_dim]
    // log(sum(exp(score))) of each row and head, for the backward pass: [heads, rows], where the
    // rows of consecutive heads are lse_stride apart. Null if no backward pass follows; then they
    // are not written.
    float* lse = nullptr;
    int64_t lse_stride = 0;
    Compute compute = Compute::kF32;
    int64_t window = 0;  // not 0: a row sees its own key and the window - 1 keys before it
    float soft_cap = 0;  // not 0: a scaled score s becomes soft_cap * tanh(s / soft_cap)
    // [heads] or null: each head has one more score, its sink, whose value is zeros. It counts in
    // lse.
    const float* sinks = nullptr;
    // [heads] or null: a scaled score also has the head's slope times (key - row), without a soft
    // cap (ALiBi).
    const float* slopes = nullptr;

    // The first row that row `row` of a sequence attends to.
    int64_t FirstKey(int64_t row) const {
        return window == 0 || row < window ? 0 : row - window + 1;
    }
    int64_t KvHead(int64_t head) const { return (first_head + head) / group - first_kv_head; }
};

// With p = softmax(scale * q . k^T) and dp = dout . v^T (Dao et al. 2022, appendix B.2):
//   dv = p^T . dout, ds = p * (dp - rows' sum(p * dp)), dq = scale * ds . k, dk = scale * ds^T . q
// With a soft cap, ds also has the factor 1 - tanh(s / soft_cap)^2. The forward pass does not store
// p; the backward pass computes it again. dk and dv are summed in float32 over the query heads of a
// KV head, and then rounded once. All matrices have the type of q. All rows of sequences are
// written completely.
struct CausalGradArgs {
    CausalArgs forward;  // out and lse: results of the forward pass
    ConstMatrix dout;    // [rows, heads * head_dim]
    Matrix dq;           // [rows, heads * head_dim]
    Matrix dk, dv;       // [rows, kv_heads * head_dim]
};

// A sequence's results depend neither on the number of parts nor on the other sequences. Blocks of
// keys outside the windows of a block of queries are skipped. The functions for scratch bytes
// return the size for one part: some hundreds of KB, plus at most 8 (forward) or 20 (backward)
// bytes per element of K in one head of the longest sequence.
struct CausalKernels {
    int64_t (*causal_scratch_bytes)(const CausalArgs& args) = nullptr;
    // The blocks of queries are divided among the parts.
    void (*causal)(const CausalArgs& args, std::span<std::byte> scratch, int part,
                   int parts) = nullptr;
    int64_t (*causal_grad_scratch_bytes)(const CausalGradArgs& args) = nullptr;
    // The units of work are the KV heads of each sequence, with their query heads. Parts get units
    // with equal total costs. A unit at the boundary of two parts is divided by keys and queries.
    void (*causal_grad)(const CausalGradArgs& args, std::span<std::byte> scratch, int part,
                        int parts) = nullptr;
};

}  // namespace weft::kernels::dense
