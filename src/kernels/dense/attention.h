// Causal attention over the rows of each sequence of a step, as training runs it: no cache, forward
// and backward in blocks, so that no matrix of scores is kept (Dao et al. 2022; Dao 2023). The
// functions stand in the table of kernels/kernels.h.
#pragma once

#include "kernels/args.h"
#include "kernels/dense/gemm.h"

namespace weft::kernels::dense {

// Row i of a sequence attends to rows FirstKey(i) to i of the same sequence in this step. Query
// head h is head `first_head + h` of the model and reads head (first_head + h) / group -
// first_kv_head of k and v. Sequences may differ in length, their positions and pages are not read;
// rows of no sequence are not written. head_dim is a multiple of 8. q, k, v and out are of one
// type.
//
// With Compute::kBf16 all products' operands are rounded, probabilities among them; softmax stays
// float32. Numbers are finite: a NaN or an infinity may reach rows before its own.
struct CausalArgs {
    std::span<const Sequence> sequences;
    ConstMatrix q;     // [rows, heads * head_dim]
    ConstMatrix k, v;  // [rows, kv_heads * head_dim]
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    int64_t first_head = 0, group = 1, first_kv_head = 0;
    float scale = 1;
    Matrix out;  // [rows, heads * head_dim]
    // log(sum(exp(score))) of each row of a sequence, for the backward: [heads, rows], heads
    // lse_stride apart. Null in a forward that no backward follows: it is not written.
    float* lse = nullptr;
    int64_t lse_stride = 0;
    Compute compute = Compute::kF32;
    int64_t window = 0;  // not 0: a row sees its own key and the window - 1 before it
    float soft_cap = 0;  // not 0: a scaled score s becomes soft_cap * tanh(s / soft_cap)

    // The first row whose key row `row` of a sequence sees.
    int64_t FirstKey(int64_t row) const {
        return window == 0 || row < window ? 0 : row - window + 1;
    }
    int64_t KvHead(int64_t head) const { return (first_head + head) / group - first_kv_head; }
};

// With p = softmax(scale * q . k^T) and dp = dout . v^T (Dao et al. 2022, appendix B.2):
//   dv = p^T . dout, ds = p * (dp - rows' sum(p * dp)), dq = scale * ds . k, dk = scale * ds^T . q
// With a soft cap, ds has the factor 1 - tanh(s / soft_cap)^2 as well. p is computed again instead
// of kept. dk and dv are sums over the query heads of a KV head, in float32, rounded once.
// Everything is of the type of q; all rows of sequences are written, whole.
struct CausalGradArgs {
    CausalArgs forward;  // out and lse: what the forward left
    ConstMatrix dout;    // [rows, heads * head_dim]
    Matrix dq;           // [rows, heads * head_dim]
    Matrix dk, dv;       // [rows, kv_heads * head_dim]
};

// Results do not depend on parts or on the other sequences. Blocks of keys outside the windows of a
// block of queries are not computed. Scratch is what one part needs: some
// hundreds of KB, and 8 (forward) or 20 bytes at most (backward) for each element of the longest
// sequence's K of one head.
struct CausalKernels {
    int64_t (*causal_scratch_bytes)(const CausalArgs& args) = nullptr;
    // Parts share out blocks of queries.
    void (*causal)(const CausalArgs& args, std::span<std::byte> scratch, int part,
                   int parts) = nullptr;
    int64_t (*causal_grad_scratch_bytes)(const CausalGradArgs& args) = nullptr;
    // Parts share out KV heads of sequences, each with its query heads, by their cost; one that two
    // parts meet in is cut by keys and queries.
    void (*causal_grad)(const CausalGradArgs& args, std::span<std::byte> scratch, int part,
                        int parts) = nullptr;
};

}  // namespace weft::kernels::dense
