// The scalar definitions of the backward ops of program.h, and of attention without a cache, which
// training runs forward. Matrices are float32 and row-major, weights included; strides, (part,
// parts) and row independence are as in kernels/kernels.h. Gradients of activations are written;
// gradients of parameters are added to (`+=`). No argument overlaps an output.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::reference {

// dx [rows, k] = dy [rows, n] . weight [n, k]. Parts share out rows.
struct MatMulGradInputArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const float* weight = nullptr;
    int64_t rows = 0, n = 0, k = 0;
    float* dx = nullptr;
    int64_t dx_stride = 0;
};
void MatMulGradInput(const MatMulGradInputArgs& args, int part, int parts);

// dw [n, k] += dy [rows, n]^T . x [rows, k]. Parts share out n.
struct MatMulGradWeightArgs {
    const float* dy = nullptr;
    const float* x = nullptr;
    int64_t dy_stride = 0, x_stride = 0;
    int64_t rows = 0, n = 0, k = 0;
    float* dw = nullptr;
};
void MatMulGradWeight(const MatMulGradWeightArgs& args, int part, int parts);

// db [n] += column sums of dy [rows, n]. Parts share out n.
struct BiasGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    int64_t rows = 0, n = 0;
    float* db = nullptr;
};
void BiasGrad(const BiasGradArgs& args, int part, int parts);

// Of y = x * s * w, s = 1 / sqrt(mean(x^2) + eps) over each group of columns:
//   dx = s * (dy * w - x * s^2 * mean(dy * w * x))     parts share out rows
//   dw [group] += sum over rows and groups of dy * x * s     parts share out dw
struct RmsNormGradArgs {
    const float* dy = nullptr;
    const float* x = nullptr;
    int64_t dy_stride = 0, x_stride = 0;
    const float* weight = nullptr;  // [group]; RmsNormGradWeight reads none
    float eps = 0;
    int64_t rows = 0, cols = 0, group = 0;
    float* dx = nullptr;  // RmsNormGradInput
    int64_t dx_stride = 0;
    float* dw = nullptr;  // RmsNormGradWeight
};
void RmsNormGradInput(const RmsNormGradArgs& args, int part, int parts);
void RmsNormGradWeight(const RmsNormGradArgs& args, int part, int parts);

// Attention in which row i of a sequence attends to rows 0..i of the same sequence in this step.
// Query head h is head `first_head + h` of the model and reads head
// (first_head + h) / group - first_kv_head of k and v. Parts share out heads. Sequences' positions
// and pages are not read; rows of no sequence are not written.
struct CausalAttentionArgs {
    std::span<const Sequence> sequences;
    const float* q = nullptr;  // [rows, heads * head_dim]
    const float* k = nullptr;  // [rows, kv_heads * head_dim]
    const float* v = nullptr;
    int64_t q_stride = 0, k_stride = 0, v_stride = 0;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    int64_t first_head = 0, group = 1, first_kv_head = 0;
    float scale = 1;
};
void CausalAttention(const CausalAttentionArgs& args, float* out, int64_t out_stride, int part,
                     int parts);

// With p = softmax(scale * q . k^T) and dp = dout . v^T (Dao et al. 2022, appendix B.2):
//   dv = p^T . dout, ds = p * (dp - rows' sum(p * dp)), dq = scale * ds . k, dk = scale * ds^T . q
// p is computed again instead of kept. Parts share out KV heads, each with its query heads.
struct CausalAttentionGradArgs {
    CausalAttentionArgs forward;
    const float* dout = nullptr;  // [rows, heads * head_dim]
    int64_t dout_stride = 0;
    float* dq = nullptr;  // all rows of sequences are written, whole
    float* dk = nullptr;
    float* dv = nullptr;
    int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
};
void CausalAttentionGrad(const CausalAttentionGradArgs& args, int part, int parts);

// Of out = silu(gate) * up, with sig = 1 / (1 + exp(-gate)):
//   dup = dout * gate * sig, dgate = dout * up * sig * (1 + gate * (1 - sig));
// of GELU sig = 1 / (1 + exp(-2 u)), and 2 u' gate takes the place of gate. Parts share out rows.
struct GluGradArgs {
    const float* dout = nullptr;
    const float* gate = nullptr;
    const float* up = nullptr;
    int64_t rows = 0, cols = 0, dout_stride = 0, gate_stride = 0, up_stride = 0;
    float* dgate = nullptr;
    float* dup = nullptr;
    int64_t dgate_stride = 0, dup_stride = 0;
    Activation activation = Activation::kSilu;  // or kGeluTanh; no other has a gradient
};
void GluGrad(const GluGradArgs& args, int part, int parts);

// dtable [table_rows, cols] row `tokens[i] - first_row` += row i of dy; tokens outside the table
// add nothing. Parts share out columns.
struct EmbeddingGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const int32_t* tokens = nullptr;
    int64_t count = 0, first_row = 0, table_rows = 0, cols = 0;
    float* dtable = nullptr;
};
void EmbeddingGrad(const EmbeddingGradArgs& args, int part, int parts);

// dx [rows, cols] = zeros, then row `selected[i]` += row i of dy [count, cols]. Parts share out
// columns.
struct SelectRowsGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const int32_t* selected = nullptr;
    int64_t count = 0, rows = 0, cols = 0;
    float* dx = nullptr;
    int64_t dx_stride = 0;
};
void SelectRowsGrad(const SelectRowsGradArgs& args, int part, int parts);

// loss = sum over rows of logsumexp(logits) - logits[target]; a negative target counts nothing.
// One thread: the sum's order defines the bits.
struct CrossEntropyArgs {
    const float* logits = nullptr;  // [rows, cols]
    int64_t logits_stride = 0;
    const int32_t* targets = nullptr;  // [rows], below cols
    int64_t rows = 0, cols = 0;
};
float CrossEntropy(const CrossEntropyArgs& args);
// dlogits = dloss * (softmax(logits) - onehot(target)), zeros where the target is negative. Parts
// share out rows.
void CrossEntropyGrad(const CrossEntropyArgs& args, float dloss, float* dlogits,
                      int64_t dlogits_stride, int part, int parts);

}  // namespace weft::kernels::reference
